// The dialog with samples of documents at a stage.

import { bdi, byId, h, setText, show } from "./dom.js";
import * as format from "./format.js";

export class SamplesDialog {
  constructor() {
    this.dialog = byId("samples");
    this.wanted = null;
    this.ended = false;
    byId("samples-close").addEventListener("click", () => this.dialog.close());
    byId("samples-again").addEventListener("click", () => this.read());
  }

  open(phase, stage, name) {
    this.wanted = { phase, stage };
    byId("samples-title").replaceChildren("Documents at ", bdi(name));
    this.fill([], []);
    this.dialog.showModal();
    this.read();
  }

  async read() {
    const wanted = this.wanted;
    setText(byId("samples-note"), "Reading finished blocks…");
    let found = null;
    let problem = "";
    try {
      const answer = await fetch(`samples?phase=${wanted.phase}&stage=${wanted.stage}`);
      if (answer.ok) found = await answer.json();
      else problem = await answer.text();
    } catch {
      problem = "The run has ended, so its documents cannot be read from here. `gristmill dropped OUTPUT` shows them.";
    }
    if (wanted !== this.wanted) return;
    if (found) this.fill(found.dropped, found.passed, found);
    else this.fill([], []);
    setText(byId("samples-note"), problem || this.note(found));
  }

  note(found) {
    const words = ["From the latest finished blocks."];
    if (!found.dropped.length) words.push("No dropped document was found there.");
    if (!found.passed.length) words.push("No kept document was found there.");
    if (!found.complete) words.push("Reading stopped at its limit of bytes.");
    if (!found.show_text) words.push("Texts are switched off.");
    return words.join(" ");
  }

  fill(dropped, passed) {
    byId("samples-dropped").replaceChildren(...dropped.map((one) => this.item(one)));
    byId("samples-passed").replaceChildren(...passed.map((one) => this.item(one)));
  }

  item(one) {
    const head = h("div", {}, bdi(one.id || "no id"));
    const score = one.score === null ? "" : ` (score ${Number(one.score.toPrecision(4))})`;
    const parts = [head];
    if (one.reason) {
      const where = one.dropped_by ? h("span", {}, "later dropped by ", bdi(one.dropped_by), ": ") : "";
      parts.push(h("div", { class: "reason" }, where, bdi(one.reason), score));
    }
    if (one.text !== undefined) parts.push(h("p", { class: "text", dir: "auto", tabindex: "0", role: "group", "aria-label": "text", text: one.text }));
    if (one.fields && one.fields.length) {
      const fields = h("div", { class: "fields" });
      one.fields.forEach(([name, value], i) => fields.append(i ? " · " : "", bdi(name), ": ", bdi(value)));
      parts.push(fields);
    }
    return h("li", {}, ...parts);
  }
}
