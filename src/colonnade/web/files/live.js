// The live page: draws the state that the process sends. Texts become text nodes, never markup.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const drawn = {}; // what stands where, so that nothing is drawn again that did not change

  function make(name, facts = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(facts)) {
      if (key === "class") node.className = value; else node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  function shape(name, facts, ...children) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(facts)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  function changed(place, value) {
    const text = JSON.stringify(value);
    if (drawn[place] === text) return false;
    drawn[place] = text;
    return true;
  }
  const number = (value) => value === null || value === undefined || value === "" ? "–" : Number(value).toLocaleString("en");
  const score = (value) => value === null || value === undefined ? "–" : Number(value).toFixed(4);
  function size(bytes) {
    if (bytes === null || bytes === undefined || bytes === "") return "–";
    if (bytes < 1000) return `${bytes} B`;
    const at = Math.min(3, Math.floor(Math.log10(bytes) / 3));
    return `${(bytes / 1000 ** at).toFixed(1)} ${["B", "kB", "MB", "GB"][at]}`;
  }
  const clock = (text) => text ? String(text).replace("T", " ").replace(/\.\d+/, "").replace("Z", " UTC") : "";

  function table(label, columns, rows, current) {
    const head = make("tr", {}, ...columns.map(([name, kind]) => make("th", {scope: "col", class: kind || ""}, name)));
    const body = rows.map((cells, at) => {
      const row = make("tr", current === at ? {"aria-current": "true"} : {});
      cells.forEach((cell, place) => {
        const kind = columns[place][1] || "";
        row.append(place ? make("td", {class: kind}, cell) : make("th", {scope: "row", class: kind}, cell));
      });
      return row;
    });
    const drawnTable = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, as a table`}, drawnTable);
  }

  // -- curves ---------------------------------------------------------------------------------

  function ticks(low, high, count) {
    const span = high - low || Math.abs(high) || 1;
    const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }
  function chart(lines, most, label, logarithmic) {
    const W = 520, H = 240, left = 56, right = 14, top = 12, bottom = 34;
    const all = lines.flatMap((line) => line.points);
    let values = all.map((point) => logarithmic ? Math.log10(point[1]) : point[1]);
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) { low -= Math.abs(low) * 0.05 + 1e-3; high += Math.abs(high) * 0.05 + 1e-3; }
    const pad = (high - low) * 0.06; low -= pad; high += pad * (lines.length > 1 ? 4 : 1);
    const x = (round) => left + (W - left - right) * round / Math.max(most, 1);
    const y = (value) => top + (H - top - bottom) * (high - (logarithmic ? Math.log10(value) : value)) / (high - low);
    const svg = shape("svg", {class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label});
    for (const at of ticks(low, high, 4)) {
      const place = top + (H - top - bottom) * (high - at) / (high - low);
      const told = logarithmic ? (10 ** at).toPrecision(2) : String(at);
      svg.append(shape("line", {class: "grid", x1: left, x2: W - right, y1: place, y2: place}),
        shape("text", {x: left - 6, y: place + 4, "text-anchor": "end"}, told));
    }
    for (const at of ticks(0, Math.max(most, 1), 5)) {
      if (!Number.isInteger(at)) continue;
      svg.append(shape("text", {x: x(at), y: H - bottom + 16, "text-anchor": "middle"}, at.toLocaleString("en")));
    }
    svg.append(shape("path", {class: "axis", d: `M${left} ${top}V${H - bottom}H${W - right}`}),
      shape("text", {x: W - right, y: H - 4, "text-anchor": "end"}, "round"));
    for (const line of lines) {
      const path = line.points.map((point, at) => `${at ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
      svg.append(shape("path", {class: line.kind, d: path}));
      const last = line.points[line.points.length - 1], px = x(last[0]), py = y(last[1]);
      svg.append(line.kind === "first" ? shape("circle", {class: "dot", cx: px, cy: py, r: 4})
        : shape("rect", {class: "square", x: px - 4, y: py - 4, width: 8, height: 8}));
    }
    if (lines.length > 1) lines.forEach((line, at) => { // a legend where curves that fall are not
      const px = W - right - 110, py = top + 10 + 18 * at;
      svg.append(shape("path", {class: line.kind, d: `M${px} ${py}h36`}), line.kind === "first"
        ? shape("circle", {class: "dot", cx: px + 36, cy: py, r: 4}) : shape("rect", {class: "square", x: px + 32, y: py - 4, width: 8, height: 8}),
      shape("text", {class: "name", x: px + 48, y: py + 4}, line.name));
    });
    return svg;
  }
  function figure(id, caption, lines, most, label, logarithmic) {
    const place = byId(id), kept = lines.filter((line) => line.points.length);
    place.hidden = !kept.length;
    if (!kept.length || !changed(id, [caption, kept, most])) return;
    place.querySelector("figcaption").replaceChildren(caption);
    place.querySelector("div").replaceChildren(chart(kept, most, label, logarithmic));
  }

  // -- one run --------------------------------------------------------------------------------

  const MARKS = {finished: "✓", diverged: "✗", damaged: "✗", failed: "✗", waiting: "…", "waits for approval": "?", training: "▸", beginning: "▸", "not running": "■"};
  function inWords(run) {
    let told = run.state;
    if (run.round !== null && run.rounds) told += `, round ${number(run.round)} of ${number(run.rounds)}`;
    if (run.waits_for.length) {
      told += run.state === "waits for approval" ? " by" : "; waits for";
      told += ` ${run.waits_for.join(", ")}${run.since ? ` since ${clock(run.since)}` : ""}`;
    }
    return told;
  }
  function fact(name, value, wide) {
    return make("div", wide ? {class: "wide"} : {}, make("dt", {}, name), make("dd", {}, value));
  }
  function showRun(view) {
    const place = byId("run");
    place.hidden = !view;
    if (!view) return;
    const run = view.status;
    byId("run-title").textContent = run.run;
    if (changed("state", [run.state, run.round, run.rounds, run.waits_for, run.since])) {
      const kind = run.state === "finished" ? "good" : run.waits_for.length ? "waits" : "";
      byId("state").replaceChildren(make("span", {class: `mark ${kind}`, "aria-hidden": "true"}, MARKS[run.state] || "·"), inWords(run));
    }
    const bar = byId("progress");
    bar.max = run.rounds || 1;
    bar.value = run.round || 0;
    if (changed("facts", run)) {
      const best = run.best !== null && run.best !== run.score ? ` (best ${score(run.best)})` : "";
      const facts = [fact("Method", run.method || "–"), fact("Seen as", run.role)];
      const over = run.state === "finished" || run.state === "diverged";
      if (run.score !== null) facts.push(fact((run.metric || "score") + (over ? " of the kept round" : ""), score(run.score) + best));
      if (run.test !== null) facts.push(fact(`test ${run.test_metric}`, score(run.test)));
      if (run.bytes !== null) facts.push(fact("Training traffic", size(run.bytes)));
      if (view.evaluation !== null) facts.push(fact("Evaluation traffic", size(view.evaluation)));
      if (run.seconds !== null) facts.push(fact("Training time", `${number(Math.round(run.seconds))} s`));
      if (run.note) facts.push(fact(run.waits_for.length ? "Why" : "Note", run.note, true));
      if (run.role === "party") facts.push(fact("Epsilon", "of all runs together: see what tables have cost", true));
      else facts.push(fact("Epsilon", run.epsilon ? `${run.epsilon.epsilon.toFixed(3)}: ${run.epsilon.is}` : "no figure: no noise on the uploads, or none that is counted while it trains", true));
      byId("facts").replaceChildren(...facts);
    }
    const most = Math.max(run.round || 0, ...view.curve.map((p) => p[0]), ...view.primal.map((p) => p[0]));
    const last = view.curve[view.curve.length - 1];
    const metric = run.metric || "score";
    figure("score", metric, [{name: metric, kind: "first", points: view.curve}], most,
      last ? `${metric} by round; ${score(last[1])} after round ${last[0]}` : "");
    const positive = (points) => points.filter((point) => point[1] > 0);
    figure("residuals", "Residuals, on a logarithmic scale",
      [{name: "primal", kind: "first", points: positive(view.primal)}, {name: "dual", kind: "second", points: positive(view.dual)}],
      most, "primal and dual residuals by round", true);
    if (changed("parties", view.parties)) {
      byId("parties").replaceChildren(table("Parties", [["party"], ["presence"], ["since"], ["sent", "number"], ["received", "number"]],
        view.parties.map((party) => [party.name, (party.state === "waited for" || party.state === "away" ? "⚠ " : "") + party.state, clock(party.since) || "–", size(party.up), size(party.down)])));
    }
    if (changed("ledger", [view.entries, view.ledger])) {
      byId("ledger-title").textContent = `Ledger: ${number(view.entries)} entries, the last ${view.ledger.length}`;
      const columns = [["entry", "number"], ["time"], ["owner"], ["for"], ["purpose"], ["round", "number"], ["rows", "number"], ["mechanism"], ["unit"], ["size", "number"]];
      byId("ledger").replaceChildren(table("The end of the ledger", columns, view.ledger.slice().reverse().map((one) => [
        number(one.entry), clock(one.time), one.owner, one.audience === "*" ? "all" : one.audience, one.purpose, String(one.round), number(one.rows), one.mechanism, one.unit, size(one.bytes)])));
    }
    if (changed("events", view.events)) {
      byId("events").replaceChildren(view.events.length ? table("The last events", [["time"], ["event"], ["facts", "words"]],
        view.events.slice().reverse().map((one) => [clock(one.time), one.event, told(one)])) : make("p", {}, "none"));
    }
  }
  function told(event) {
    if (event.event === "round") {
      const judged = event.score === null || event.score === undefined ? "" : `, ${event.metric} ${score(event.score)}`;
      return `${event.round} of ${event.rounds}${judged}`;
    }
    return Object.entries(event).filter(([name]) => name !== "time" && name !== "event")
      .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(", ") : value}`).join("; ");
  }

  // -- everything else ------------------------------------------------------------------------

  function showRuns(state) {
    const place = byId("runs"), runs = state.runs || [];
    place.hidden = !runs.length;
    const current = runs.findIndex((run) => state.shown && run.run === state.shown.status.run);
    if (!runs.length || !changed("runs", [runs, current])) return;
    const link = (run) => make("a", {href: `/?run=${encodeURIComponent(run.run)}`}, run.run);
    place.querySelector("div").replaceChildren(table("Runs", [["run"], ["state"], ["score", "number"], ["what it is"], ["seen as"]],
      runs.map((run) => [link(run), inWords(run), score(run.score), run.metric || "–", run.role]), current));
  }
  function showTables(tables) {
    const place = byId("tables");
    place.hidden = !tables || !tables.length;
    if (place.hidden || !changed("tables", tables)) return;
    const rows = tables.flatMap((one) => {
      const limit = one.most_epsilon === null ? "no limit" : `epsilon ${one.most_epsilon} by unit`;
      const cost = one.spent.map((s) => s.epsilon === null ? `no epsilon (unit ${s.unit}, ${s.neighbours}, delta ${s.delta}): ${s.why}`
        : `epsilon ${s.epsilon.toFixed(3)} (${s.accountant} accountant, unit ${s.unit}, ${s.neighbours}, delta ${s.delta})`);
      return [[one.table, number(one.runs), cost.join("; ") || one.note || "nothing was spent on it", limit, number(one.predictions.times)]];
    });
    place.querySelector("div").replaceChildren(table("What tables have cost",
      [["table"], ["runs", "number"], ["all runs together", "words"], ["the policy allows"], ["predictions, which no noise covers", "number"]], rows));
  }
  const gone = (rows) => rows ? `; trained with ${number(rows)} row${rows === 1 ? " of a person" : "s of people"} who withdrew since` : "";
  function showModels(models) {
    const place = byId("models"), rows = (models || []).flatMap((model) => model.versions.map((one) =>
      [`${model.run}, version ${one.version}`, one.state, score(one.validation), score(one.test), one.metric || "–", one.why + gone(one.withdrawn)]));
    place.hidden = !rows.length;
    if (place.hidden || !changed("models", rows)) return;
    place.querySelector("div").replaceChildren(table("Versions of the model",
      [["version"], ["state"], ["validation", "number"], ["test", "number"], ["metric"], ["why", "words"]], rows));
  }
  function showProposals(me) {
    const place = byId("proposals");
    const logout = byId("logout");
    logout.hidden = !me.token;
    logout.elements.token.value = me.token;
    place.hidden = !me.proposals.length;
    if (!changed("proposals", [me.proposals, me.token])) return;
    place.querySelector("div").replaceChildren(...me.proposals.map((one) => proposal(one, me.token)));
  }
  function proposal(one, token) {
    const facts = one.facts || {}, id = `because-${one.digest.slice(0, 12)}`;
    const lines = [`${facts.method}, ${number(facts.rounds)} rounds, ${number(facts.rows)} rows, with ${(facts.parties || []).join(", ")}`,
      `protection: ${facts.privacy}`, `labels: ${facts.labels || `exposure ${facts.label_exposure}`}`, ...one.leaves.map((text) => `leaves: ${text}`)];
    const answer = make("p", {class: "told", role: "alert"});
    const because = make("input", {type: "text", name: "because", id, maxlength: "300"});
    const approve = make("button", {type: "submit", value: "approve"}, `Approve ${one.run}`);
    const refuse = make("button", {type: "submit", value: "refuse", class: "other"}, `Refuse ${one.run}`);
    const hidden = Object.entries({run: one.run, digest: one.digest, token}).map(([name, value]) => make("input", {type: "hidden", name, value}));
    const form = make("form", {action: "/decide", method: "post"}, ...hidden,
      make("label", {for: id}, "Reason (needed to refuse; the label holder reads it)"), because, approve, refuse, answer);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const body = new URLSearchParams(new FormData(form));
      body.set("decision", event.submitter.value);
      approve.disabled = refuse.disabled = true;
      try {
        const sent = await fetch("/decide", {method: "POST", body, credentials: "same-origin"});
        answer.textContent = (await sent.text()).trim() + (sent.ok ? "; signed, and read by the process within seconds" : "");
        if (sent.ok) return;
      } catch (error) { answer.textContent = "the process did not answer; try again"; }
      approve.disabled = refuse.disabled = false;
    });
    return make("article", {class: "proposal", "aria-label": `Proposal of run ${one.run}`}, make("h3", {}, one.run),
      make("p", {}, `since ${clock(one.time)}: ${one.reason}`), make("ul", {}, ...lines.map((line) => make("li", {}, line))),
      make("p", {}, "Proposal ", make("code", {}, one.digest.slice(0, 12))), form);
  }
  function show(state) {
    document.title = `${state.title}: Colonnade`;
    byId("title").textContent = state.title;
    showProposals(state.me);
    showRuns(state);
    showRun(state.shown);
    showTables(state.tables);
    showModels(state.models);
  }

  // -- the connection: the browser connects again by itself, and the first thing it gets is everything -----------------

  const connection = byId("connection");
  const say = (text) => { if (connection.textContent !== text) connection.textContent = text; };
  const run = new URLSearchParams(location.search).get("run") || "";
  const source = new EventSource(`/watch/events?run=${encodeURIComponent(run)}`);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("state", (event) => { say("live"); show(JSON.parse(event.data)); });
  source.addEventListener("end", () => { source.close(); say("The process has ended, and this page with it: what is shown is the last state."); });
  source.addEventListener("logged-out", () => { source.close(); location.assign("/login"); });
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "not connected: open the page again" : "not connected; trying again"));
})();
