// An editor of text (CodeMirror, from NiceGUI's wheel): completion by the server, and marks at what is wrong.
import * as CM from "nicegui-codemirror";

const setMarks = CM.StateEffect.define();
const marksField = CM.StateField.define({
  create: () => CM.Decoration.none,
  update(marks, tr) {
    for (const effect of tr.effects) if (effect.is(setMarks)) return effect.value;
    return marks.map(tr.changes);
  },
  provide: (field) => CM.EditorView.decorations.from(field),
});
const KINDS = { source: "class", view: "class", table: "class", column: "property", function: "function", keyword: "keyword" };

export default {
  template: `<div class="editor"></div>`,
  props: { value: String, language: String, label: String, marks: Array, completes: Boolean, readonly: Boolean },
  emits: ["change", "run", "complete"],
  watch: {
    marks() {
      this.mark();
    },
    value(text) {
      this.replace(text);
    },
  },
  mounted() {
    this.asked = 0;
    this.waiting = new Map();
    const self = this;
    const listener = CM.EditorView.updateListener.of((update) => {
      if (update.docChanged && !self.quiet) self.later();
    });
    const run = { key: "Mod-Enter", run: () => (self.flush(), self.$emit("run", self.text()), true) };
    const extensions = [
      CM.Prec.high(CM.keymap.of([run])),
      CM.basicSetup,
      CM.EditorView.lineWrapping,
      CM.EditorView.contentAttributes.of({ "aria-label": this.label || "Text" }),
      CM.EditorState.readOnly.of(!!this.readonly),
      listener,
      marksField,
    ];
    if (this.completes) {
      // One function for ever: CodeMirror asks again whenever it meets another one.
      const data = [{ autocomplete: (context) => self.completions(context) }];
      extensions.push(CM.EditorState.languageData.of(() => data));
    }
    this.languageConfig = new CM.Compartment();
    extensions.push(this.languageConfig.of([]));
    this.view = new CM.EditorView({ doc: this.value || "", extensions, parent: this.$el });
    // Before the click that took the focus is a click: whoever presses a button means what is typed.
    this.view.contentDOM.addEventListener("blur", () => this.flush());
    const known = CM.languages.find((one) => one.name.toLowerCase() === (this.language || "").toLowerCase());
    known?.load().then((support) => {
      // The language's own words would stand beside the server's, which knows Forebay's statements.
      const language = this.completes ? support.language : support;
      this.view.dispatch({ effects: this.languageConfig.reconfigure(language) });
    });
    this.mark();
  },
  beforeUnmount() {
    clearTimeout(this.timer);
    this.view.destroy();
  },
  methods: {
    text() {
      return this.view.state.doc.toString();
    },
    later() {
      clearTimeout(this.timer);
      this.pending = true;
      this.timer = setTimeout(() => this.flush(), 120);
    },
    flush() {
      clearTimeout(this.timer);
      if (!this.pending) return;
      this.pending = false;
      this.$emit("change", this.text());
    },
    replace(text) {
      if (text === this.text()) return;
      this.quiet = true;
      this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text || "" } });
      this.quiet = false;
    },
    mark() {
      // The server counts characters, CodeMirror UTF-16 units.
      const units = [0];
      for (const character of this.text()) units.push(units[units.length - 1] + character.length);
      const last = units.length - 1;
      const ranges = (this.marks || [])
        .map(([from, to]) => [units[Math.min(from, last)], units[Math.min(to, last)]])
        .filter(([from, to]) => from < to)
        .map(([from, to]) => CM.Decoration.mark({ class: "cm-fault" }).range(from, to));
      this.view.dispatch({ effects: setMarks.of(CM.Decoration.set(ranges, true)) });
    },
    completions(context) {
      const word = context.matchBefore(/[\w.$"'-]+/);
      if (!word && !context.explicit) return null;
      const id = ++this.asked;
      return new Promise((resolve) => {
        this.waiting.set(id, (found) =>
          resolve(
            found.length === 0
              ? null
              : {
                  from: context.pos + Math.min(...found.map((one) => one.start)),
                  options: found.map((one) => ({ label: one.label, type: KINDS[one.kind] || "text", detail: one.kind })),
                },
          ),
        );
        setTimeout(() => this.offer(id, []), 3000);
        this.$emit("complete", { id, text: this.text(), cursor: context.pos });
      });
    },
    offer(id, found) {
      const answer = this.waiting.get(id);
      this.waiting.delete(id);
      answer?.(found);
    },
  },
};
