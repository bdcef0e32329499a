// The search runs in a Worker, which browsers refuse to pages opened from disk. For such pages, a hidden frame takes the
// Worker's place. Without this file, the theme's offline plugin would fetch one of its kind from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, location).href;
      this.loaded = new Promise(resolve => { script.onload = resolve; });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
