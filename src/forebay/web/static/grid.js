// A dense table. Whatever is in a cell is text: Vue's {{ }} escapes it, and no cell has markup.
// A cell is null, text, a number, or an object:
//   {text, title, tone, href, mono}   words, in a tone, or a link
//   {ms}                              a time, shown in the reader's own zone
//   {spark: [numbers], text}          a small line of counts
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };

export default {
  template: `
    <div class="grid-wrap">
      <table class="grid" :aria-label="label">
        <thead>
          <tr>
            <th v-if="selectable" scope="col" class="pick">
              <input type="checkbox" :checked="all" :indeterminate.prop="some && !all" aria-label="Select all on this page" @change="toggleAll" />
            </th>
            <th v-for="column in columns" scope="col" :class="[column.align || 'start', column.wide ? 'wide' : '', column.phone === false ? 'no-phone' : '']">{{ column.label }}</th>
          </tr>
        </thead>
        <tbody>
          <tr v-for="row in rows" :key="row.id" :class="[row.tone, row.id === current ? 'current' : '', clickable ? 'clickable' : '']"
              :aria-selected="clickable ? String(row.id === current) : undefined"
              :data-id="row.id" @click="open(row, $event)">
            <td v-if="selectable" class="pick" @click.stop>
              <input type="checkbox" :checked="selected.includes(row.id)" :aria-label="'Select ' + (row.name || row.id)" @change="toggle(row.id)" />
            </td>
            <td v-for="(column, index) in columns" :class="[column.align || 'start', column.wide ? 'wide' : '', column.mono ? 'mono' : '', column.phone === false ? 'no-phone' : '']">
              <template v-for="cell in [row.cells[index]]">
                <span v-if="cell === null || cell === undefined" class="none" aria-label="unknown">–</span>
                <template v-else-if="typeof cell !== 'object'">
                  <button v-if="clickable && index === first" type="button" class="cell-button" @click.stop="$emit('open', row.id)">{{ cell }}</button>
                  <template v-else>{{ cell }}</template>
                </template>
                <time v-else-if="cell.ms !== undefined" :datetime="iso(cell.ms)" :title="iso(cell.ms)">{{ time(cell.ms) }}</time>
                <svg v-else-if="cell.spark" class="spark" viewBox="0 0 100 22" preserveAspectRatio="none" role="img" :aria-label="cell.text || 'trend'">
                  <path class="spark-fill" :d="spark(cell.spark, true)" /><path class="spark-line" :d="spark(cell.spark, false)" />
                </svg>
                <a v-else-if="cell.href" :href="cell.href" :title="cell.title" :class="cell.tone" @click.stop>{{ cell.text }}</a>
                <button v-else-if="clickable && index === first" type="button" class="cell-button" :class="cell.tone" :title="cell.title" @click.stop="$emit('open', row.id)">{{ cell.text }}</button>
                <span v-else :class="[cell.tone, cell.mono ? 'mono' : '']" :title="cell.title">{{ cell.text }}</span>
              </template>
            </td>
          </tr>
        </tbody>
      </table>
    </div>`,
  props: {
    columns: { type: Array, default: () => [] },
    rows: { type: Array, default: () => [] },
    selectable: Boolean,
    clickable: Boolean,
    selected: { type: Array, default: () => [] },
    current: { type: String, default: null },
    label: { type: String, default: "" },
    first: { type: Number, default: 0 },
  },
  emits: ["open", "select"],
  computed: {
    all() {
      return this.rows.length > 0 && this.rows.every((row) => this.selected.includes(row.id));
    },
    some() {
      return this.rows.some((row) => this.selected.includes(row.id));
    },
  },
  methods: {
    open(row, event) {
      if (this.clickable && !window.getSelection()?.toString()) this.$emit("open", row.id);
    },
    toggle(id) {
      const left = this.selected.filter((one) => one !== id);
      this.$emit("select", left.length === this.selected.length ? [...left, id] : left);
    },
    toggleAll() {
      const here = this.rows.map((row) => row.id);
      const others = this.selected.filter((one) => !here.includes(one));
      this.$emit("select", this.all ? others : [...others, ...here]);
    },
    iso(ms) {
      return new Date(ms).toISOString();
    },
    time(ms) {
      const at = new Date(ms);
      const clock = at.toLocaleTimeString([], TIME);
      return at.toDateString() === new Date().toDateString() ? clock : at.toLocaleDateString([], { month: "short", day: "numeric" }) + ", " + clock;
    },
    spark(values, filled) {
      const most = Math.max(1, ...values);
      const step = 100 / Math.max(1, values.length - 1);
      const points = values.map((value, i) => `${(i * step).toFixed(1)},${(20 - (18 * value) / most).toFixed(1)}`);
      const line = "M" + points.join("L");
      return filled ? line + "L100,22L0,22Z" : line;
    },
  },
};
