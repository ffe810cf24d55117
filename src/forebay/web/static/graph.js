// The pipeline: columns of boxes, and lines between them that are drawn where the boxes are. Names are text.
export default {
  template: `
    <div class="graph" ref="root" role="group" :aria-label="label">
      <svg class="graph-lines" aria-hidden="true" :width="width" :height="height">
        <path v-for="line in lines" :d="line.d" :class="line.tone" />
      </svg>
      <section v-for="column in columns" class="graph-column" :aria-label="column.title">
        <h3>{{ column.title }}</h3>
        <component :is="node.link ? 'a' : 'div'" v-for="node in column.nodes" :key="node.id" :href="node.link || undefined" :ref="(el) => keep(node.id, el)"
             class="node" :class="[node.tone, node.bottleneck ? 'bottleneck' : '']" :title="node.why">
          <span class="node-head"><span class="dot" aria-hidden="true"></span><span class="node-name">{{ node.name }}</span>
            <span v-if="node.bottleneck" class="flag">bottleneck</span></span>
          <span class="node-facts"><span v-for="fact in node.facts" :class="fact.tone">{{ fact.text }}</span></span>
        </component>
        <a v-if="column.more" class="more" :href="column.link">{{ column.more }}</a>
        <p v-if="!column.nodes.length" class="none">{{ column.empty }}</p>
      </section>
    </div>`,
  props: {
    columns: { type: Array, default: () => [] },
    edges: { type: Array, default: () => [] },
    label: { type: String, default: "" },
  },
  data() {
    return { lines: [], width: 0, height: 0 };
  },
  created() {
    this.boxes = new Map();
  },
  mounted() {
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.$refs.root);
    this.draw();
  },
  unmounted() {
    this.observer?.disconnect();
  },
  watch: {
    columns: { handler() { this.$nextTick(() => this.draw()); }, deep: true },
    edges: { handler() { this.$nextTick(() => this.draw()); }, deep: true },
  },
  methods: {
    keep(id, el) {
      if (el) this.boxes.set(id, el);
      else this.boxes.delete(id);
    },
    draw() {
      const root = this.$refs.root;
      if (!root) return;
      const base = root.getBoundingClientRect();
      this.width = root.scrollWidth;
      this.height = root.scrollHeight;
      const at = (el) => {
        const box = el.getBoundingClientRect();
        return { left: box.left - base.left + root.scrollLeft, right: box.right - base.left + root.scrollLeft, y: box.top - base.top + box.height / 2 };
      };
      this.lines = this.edges
        .filter((edge) => this.boxes.has(edge.start) && this.boxes.has(edge.end))
        .map((edge) => {
          const from = at(this.boxes.get(edge.start));
          const to = at(this.boxes.get(edge.end));
          const bend = Math.max(16, (to.left - from.right) / 2);
          return { d: `M${from.right},${from.y}C${from.right + bend},${from.y} ${to.left - bend},${to.y} ${to.left},${to.y}`, tone: edge.tone || "" };
        });
    },
  },
};
