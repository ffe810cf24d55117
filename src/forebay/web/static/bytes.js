// A payload as text, with the place at fault marked. Parts are text; nothing in them is ever markup.
export default {
  template: `<pre class="payload" :class="{ hex: hex }" tabindex="0" :aria-label="label"><template v-for="part in parts"><mark v-if="part.bad" :title="part.why || undefined">{{ part.text }}</mark><span v-else-if="part.dim" class="dim">{{ part.text }}</span><template v-else>{{ part.text }}</template></template></pre>`,
  props: { parts: { type: Array, default: () => [] }, label: String, hex: Boolean },
};
