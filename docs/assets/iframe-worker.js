// Browsers start no worker for a page that was opened from a file. Search then runs in a hidden
// frame that looks like a worker: the site is searched without a server and without a network.
// As with a worker, each side gets a copy of a message made when it is sent: the page goes on with
// its own object, and what is typed would be lost in it.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (message) => {
        const data = structuredClone(message);
        setTimeout(() => this.onmessage?.({ data }));
      };
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        const messages = this.waiting;
        this.waiting = null;
        messages.forEach((data) => this.deliver(data));
      };
      script.onerror = (event) => this.onerror?.(event);
      inside.document.body.append(script);
    }

    postMessage(message) {
      const data = structuredClone(message);
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    deliver(data) {
      setTimeout(() => this.frame.contentWindow?.onmessage?.({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
