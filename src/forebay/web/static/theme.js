// Light, dark, or what the system says. A cookie keeps it, so that the server's next page begins in it.
(() => {
  const modes = ["auto", "light", "dark"];
  const read = () => (document.cookie.match(/(?:^|; )forebay-theme=(\w+)/) || [])[1] || "auto";
  const dark = () => (read() === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : read() === "dark");
  const paint = () => document.documentElement.classList.toggle("dark", dark());
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  window.forebayTheme = () => {
    const next = modes[(modes.indexOf(read()) + 1) % modes.length];
    document.cookie = `forebay-theme=${next}; path=/; samesite=strict; max-age=31536000`;
    paint();
    if (window.Quasar) Quasar.Dark.set(next === "auto" ? "auto" : next === "dark");
    return next;
  };
})();
