"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("stage"), say = document.getElementById("say");
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

// Vectors and 4×4 matrices, column by column as WebGL takes them.
const add = (a, b, s = 1) => a.map((x, i) => x + s * b[i]);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = a => { const n = Math.hypot(...a) || 1; return a.map(x => x / n); };
const times = (a, b) => Array.from({length: 16}, (_, i) => {
  let sum = 0;
  for (let k = 0; k < 4; k++) sum += a[k * 4 + i % 4] * b[(i >> 2) * 4 + k];
  return sum;
});

// The eye circles around a target. Angles are those of a basis whose columns are right, down and forward: the mean of
// the cameras' up directions, which need not be an axis of the world.
const world = v => [0, 1, 2].map(i => v[0] * data.basis[0][i] + v[1] * data.basis[1][i] + v[2] * data.basis[2][i]);
const local = v => data.basis.map(axis => dot(axis, v));
const state = {yaw: 0, pitch: 0, distance: 1, target: [0, 0, 0], fov: 0.9, color: 0, floor: 0, size: 5, frusta: true, filled: 1, view: -1,
  shown: data.views.map(() => true)};
const axes = () => {
  const forward = world([Math.sin(state.yaw) * Math.cos(state.pitch), Math.sin(state.pitch), Math.cos(state.yaw) * Math.cos(state.pitch)]);
  const right = world([Math.cos(state.yaw), 0, -Math.sin(state.yaw)]);
  return {forward, right, down: cross(forward, right)};
};
const center = view => [0, 1, 2].map(i => view.pose[i][3]);
const ahead = view => [0, 1, 2].map(i => view.pose[i][2]);
const face = towards => { const forward = local(towards); state.yaw = Math.atan2(forward[0], forward[2]); state.pitch = Math.asin(Math.max(-1, Math.min(1, forward[1]))); };

function start() {
  const n = data.views.length, mean = f => data.views.map(f).reduce((a, b) => add(a, b)).map(x => x / n);
  const from = mean(center), towards = unit(mean(ahead));
  const eye = add(add(from, towards, -0.9 * data.depth), world([0, -1, 0]), 0.55 * data.depth);
  state.target = add(from, towards, 0.8 * data.depth);
  const look = add(state.target, eye, -1);
  state.distance = Math.hypot(...look); state.fov = 0.9; state.view = -1;
  face(unit(look));
  announce();
}

function lookFrom(number) {
  const view = data.views[number];
  face(ahead(view));
  state.distance = data.depth; state.fov = view.fov; state.view = number;
  state.target = add(center(view), axes().forward, state.distance);
  announce();
}

function matrix(width, height) {
  const {forward, right, down} = axes(), eye = add(state.target, forward, -state.distance);
  const near = 0.003 * data.depth, far = 60 * data.depth, f = 1 / Math.tan(state.fov / 2);
  const view = [right[0], -down[0], -forward[0], 0, right[1], -down[1], -forward[1], 0, right[2], -down[2], -forward[2], 0,
    -dot(right, eye), dot(down, eye), dot(forward, eye), 1];
  const lens = [f * height / width, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
  return times(lens, view);
}

// The ruler: numbers of two points, which the page's link keeps. The interval is that of `Ruler` in g_ray.viewer.ruler.

const stored = new Uint16Array(bytes(data.positions).buffer), errors = bytes(data.errors), sureness = bytes(data.confidence);
const guesses = data.filled ? bytes(data.filled) : new Uint8Array(sureness.length);  // nothing is measured to what was filled in
const point = i => [0, 1, 2].map(axis => data.low[axis] + stored[3 * i + axis] / 65535 * data.extent[axis]);
const firsts = data.counts.reduce((all, count) => [...all, all[all.length - 1] + count], [0]);
const viewOf = i => firsts.findIndex(first => first > i) - 1;
let ruler = [];

function measure(i, j) {
  const line = add(point(j), point(i), -1), length = Math.hypot(...line), along = unit(line);
  if (!length || !errors[i] || !errors[j]) return {length, half: null};
  const variance = k => {
    const view = data.views[viewOf(k)], ray = add(point(k), center(view), -1), d = Math.hypot(...ray), share = (dot(along, ray) / d) ** 2;
    return d * d * ((10 ** (-errors[k] / 64) / 0.67) ** 2 * share + view.pixel ** 2 * (1 - share));
  };
  const scale = data.metric ? data.scale / 1.96 * length : 0;
  return {length, half: 1.96 * Math.sqrt(variance(i) + variance(j) + scale * scale)};
}

function describe({length, half}) {
  const digits = half ? Math.max(0, 1 - Math.floor(Math.log10(half))) : 0;
  const value = half ? length.toFixed(digits) + " ± " + half.toFixed(digits) : length.toPrecision(3);
  return value + (data.metric ? " m" : " (relative: the scale is unknown)") + (half ? " (95 %)" : ", accuracy unknown");
}

function announce() {
  say.textContent = ruler.length === 2 ? describe(measure(...ruler)) : ruler.length === 1 ? "click the second point"
    : state.view >= 0 ? "from " + data.views[state.view].name : "";
}

function readLink() {
  const found = /^#ruler=(\d+),(\d+)$/.exec(location.hash);
  ruler = found ? [Number(found[1]), Number(found[2])].filter(i => i < errors.length) : [];
  if (ruler.length === 2) document.getElementById("measure").checked = true;
  announce();
}

// The point nearest to the eye of those within a few pixels of a click.
function pick(x, y) {
  const width = canvas.clientWidth, height = canvas.clientHeight, clip = matrix(width, height);
  let best = -1, nearest = Infinity;
  data.counts.forEach((count, view) => {
    for (let i = firsts[view]; state.shown[view] && i < firsts[view] + count; i++) {
      if (sureness[i] / 255 < state.floor || guesses[i]) continue;
      const at = point(i), [u, v, , w] = [0, 1, 2, 3].map(row => clip[row] * at[0] + clip[4 + row] * at[1] + clip[8 + row] * at[2] + clip[12 + row]);
      if (w > 0 && w < nearest && Math.hypot((u / w + 1) / 2 * width - x, (1 - v / w) / 2 * height - y) < 6) { best = i; nearest = w; }
    }
  });
  return best;
}

function touch(x, y) {
  const found = pick(x, y);
  if (found < 0) return;
  ruler = ruler.length === 1 ? [ruler[0], found] : [found];
  if (ruler.length === 2) history.replaceState(null, "", "#ruler=" + ruler);
  announce(); redraw();
}

// Drawing

const gl = canvas.getContext("webgl", {antialias: true, alpha: false});
const POINTS = ["attribute vec3 at; attribute vec3 rgb; attribute float sure, guess; uniform mat4 clip; uniform vec3 low, extent, own; uniform float size, floor, mode, filled;",
  "varying vec3 color;",
  "vec3 heat(float t) { vec3 a = vec3(.27, .005, .33), b = vec3(.13, .56, .55), c = vec3(.99, .91, .15);",
  "  return t < .5 ? mix(a, b, 2. * t) : mix(b, c, 2. * t - 1.); }",
  "void main() { gl_Position = clip * vec4(low + at * extent, 1.); gl_PointSize = clamp(size / gl_Position.w, 1., 40.);",
  "  if (sure < floor || guess > filled) gl_Position = vec4(2., 2., 2., 1.);",
  "  color = mode < .5 ? rgb : mode < 1.5 ? heat(sure) : mix(own, rgb, .25);",
  "  if (guess > 0.) color = mix(color, vec3(.5), .6); }"].join("\n");  // what was filled in is grayish
const DISC = ["precision mediump float; varying vec3 color;",
  "void main() { vec2 d = gl_PointCoord - .5; if (dot(d, d) > .25) discard; gl_FragColor = vec4(color, 1.); }"].join("\n");
const LINES = "attribute vec3 at; uniform mat4 clip; void main() { gl_Position = clip * vec4(at, 1.); }";
const PLAIN = "precision mediump float; uniform vec3 own; void main() { gl_FragColor = vec4(own, 1.); }";
const rgbOf = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255);

function program(vertex, fragment, names) {
  const made = gl.createProgram();
  [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]].forEach(([kind, source]) => {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source); gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  });
  names.forEach((name, i) => gl.bindAttribLocation(made, i, name));
  gl.linkProgram(made);
  return {made, at: name => gl.getUniformLocation(made, name)};
}

const buffer = content => { const b = gl.createBuffer(); gl.bindBuffer(gl.ARRAY_BUFFER, b); gl.bufferData(gl.ARRAY_BUFFER, content, gl.STATIC_DRAW); return b; };
const feed = (slot, content, size, kind, whole) => { gl.bindBuffer(gl.ARRAY_BUFFER, content); gl.enableVertexAttribArray(slot); gl.vertexAttribPointer(slot, size, kind, whole, 0, 0); };

// Fewer points are drawn larger.
const grain = 0.0012 * Math.min(3, Math.max(1, Math.sqrt(200000 / Math.max(1, data.confidence.length * 0.75))));

let parts = null;
function prepare() {
  const lines = data.views.flatMap(view => view.lines);
  parts = {
    dots: program(POINTS, DISC, ["at", "rgb", "sure", "guess"]), lines: program(LINES, PLAIN, ["at"]),
    at: buffer(new Uint16Array(bytes(data.positions).buffer)), rgb: buffer(bytes(data.colors)), sure: buffer(bytes(data.confidence)),
    guess: buffer(guesses),
    ends: buffer(new Float32Array(lines)), tape: buffer(new Float32Array(6)),
  };
  gl.enable(gl.DEPTH_TEST);
}

function draw() {
  const scale = Math.min(window.devicePixelRatio || 1, 2), width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const style = getComputedStyle(document.documentElement), paper = rgbOf(style.getPropertyValue("--card").trim());
  const clip = matrix(width, height);
  gl.viewport(0, 0, width, height); gl.clearColor(...paper, 1); gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  const dots = parts.dots;
  gl.useProgram(dots.made);
  gl.uniformMatrix4fv(dots.at("clip"), false, clip);
  gl.uniform3fv(dots.at("low"), data.low); gl.uniform3fv(dots.at("extent"), data.extent);
  gl.uniform1f(dots.at("size"), state.size * grain * data.depth * height / (2 * Math.tan(state.fov / 2)));
  gl.uniform1f(dots.at("floor"), state.floor); gl.uniform1f(dots.at("mode"), state.color);
  gl.uniform1f(dots.at("filled"), state.filled);
  feed(0, parts.at, 3, gl.UNSIGNED_SHORT, true); feed(1, parts.rgb, 3, gl.UNSIGNED_BYTE, true); feed(2, parts.sure, 1, gl.UNSIGNED_BYTE, true); feed(3, parts.guess, 1, gl.UNSIGNED_BYTE, false);
  let first = 0;
  data.views.forEach((view, i) => {
    gl.uniform3fv(dots.at("own"), rgbOf(view.color));
    if (state.shown[i] && data.counts[i]) gl.drawArrays(gl.POINTS, first, data.counts[i]);
    first += data.counts[i];
  });
  [1, 2, 3].forEach(slot => gl.disableVertexAttribArray(slot));
  gl.useProgram(parts.lines.made);
  if (ruler.length === 2) {
    gl.uniformMatrix4fv(parts.lines.at("clip"), false, clip); gl.uniform3fv(parts.lines.at("own"), [1, .31, .6]);
    gl.bindBuffer(gl.ARRAY_BUFFER, parts.tape); gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(ruler.flatMap(point)), gl.DYNAMIC_DRAW);
    feed(0, parts.tape, 3, gl.FLOAT, false);
    gl.disable(gl.DEPTH_TEST); gl.drawArrays(gl.LINES, 0, 2); gl.enable(gl.DEPTH_TEST);
  }
  if (!state.frusta) return;
  gl.uniformMatrix4fv(parts.lines.at("clip"), false, clip);
  feed(0, parts.ends, 3, gl.FLOAT, false);
  first = 0;
  data.views.forEach((view, i) => {
    gl.uniform3fv(parts.lines.at("own"), rgbOf(view.color));
    if (i !== state.view) gl.drawArrays(gl.LINES, first, view.lines.length / 3);  // one does not see the frustum one looks out of
    first += view.lines.length / 3;
  });
}

let waiting = false;
function redraw() {
  if (!gl || waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; if (parts && !gl.isContextLost()) draw(); });
}

// Moving

const turn = (dx, dy) => { state.yaw -= dx; state.pitch = Math.max(-1.55, Math.min(1.55, state.pitch + dy)); redraw(); };
const shift = (dx, dy) => {
  const {right, down} = axes(), step = 2 * Math.tan(state.fov / 2) * state.distance;
  state.target = add(add(state.target, right, -dx * step), down, -dy * step); redraw();
};
const zoom = factor => { state.distance = Math.max(0.01 * data.depth, Math.min(50 * data.depth, state.distance * factor)); redraw(); };
const leave = () => { if (state.view >= 0) { state.view = -1; announce(); } };

const fingers = new Map();
let pressed = null;  // where a finger went down, until it moves
const spread = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
canvas.addEventListener("pointerdown", event => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  pressed = fingers.size === 1 ? {x: event.clientX, y: event.clientY} : null;
});
canvas.addEventListener("pointermove", event => {
  const last = fingers.get(event.pointerId);
  if (!last) return;
  if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4) pressed = null;
  const before = fingers.size === 2 ? spread() : 0, dx = event.clientX - last.x, dy = event.clientY - last.y, h = canvas.clientHeight;
  fingers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  leave();
  if (fingers.size === 2) { zoom(before / Math.max(1, spread())); shift(dx / 2 / h, dy / 2 / h); }
  else if (event.shiftKey || event.buttons & 6) shift(dx / h, dy / h);
  else turn(3 * dx / h, -3 * dy / h);
});
canvas.addEventListener("pointerup", event => {
  const box = canvas.getBoundingClientRect();
  if (pressed && document.getElementById("measure").checked) touch(event.clientX - box.left, event.clientY - box.top);
});
["pointerup", "pointercancel"].forEach(kind => canvas.addEventListener(kind, event => fingers.delete(event.pointerId)));
canvas.addEventListener("contextmenu", event => event.preventDefault());
canvas.addEventListener("wheel", event => { event.preventDefault(); leave(); zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.0015)))); }, {passive: false});
canvas.addEventListener("keydown", event => {
  const arrow = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (arrow) { leave(); event.shiftKey ? shift(-0.05 * arrow[0], -0.05 * arrow[1]) : turn(-0.08 * arrow[0], 0.08 * arrow[1]); }
  else if (event.key === "+" || event.key === "=") { leave(); zoom(0.9); }
  else if (event.key === "-") { leave(); zoom(1 / 0.9); }
  else if (event.key === "0" || event.key === "Home") { start(); redraw(); }
  else if (event.key === "]" || event.key === "[") {
    const n = data.views.length, step = event.key === "]" ? 1 : -1;
    lookFrom(state.view < 0 ? (step > 0 ? 0 : n - 1) : (state.view + step + n) % n); redraw();
  } else return;
  event.preventDefault();
});

// Buttons

const press = (group, chosen) => group.querySelectorAll("button").forEach(b => b.setAttribute("aria-pressed", b === chosen));
document.getElementById("color").onclick = event => {
  const button = event.target.closest("button");
  if (button) { state.color = Number(button.dataset.color); press(event.currentTarget, button); redraw(); }
};
document.getElementById("show").onclick = event => {
  const button = event.target.closest("button");
  if (button) { document.getElementById("gallery").dataset.show = button.dataset.show; press(event.currentTarget, button); }
};
document.getElementById("floor").oninput = event => {
  state.floor = event.target.value / 100; document.getElementById("floor-value").value = event.target.value + " %"; redraw();
};
document.getElementById("size").oninput = event => { state.size = Number(event.target.value); redraw(); };
document.getElementById("frusta").onchange = event => { state.frusta = event.target.checked; redraw(); };
document.getElementById("measure").onchange = event => {
  if (event.target.checked) { say.textContent = "click two points"; return; }
  ruler = []; history.replaceState(null, "", location.pathname + location.search); announce(); redraw();
};
addEventListener("hashchange", () => { readLink(); redraw(); });
const filled = document.getElementById("filled");
if (filled) filled.onchange = event => { state.filled = Number(event.target.checked); redraw(); };
document.getElementById("reset").onclick = () => { start(); redraw(); };
document.querySelectorAll("[data-look]").forEach(button => button.onclick = () => {
  lookFrom(Number(button.dataset.look)); redraw();
  canvas.scrollIntoView({block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth"});
});
document.querySelectorAll("[data-points]").forEach(box => box.onchange = () => { state.shown[Number(box.dataset.points)] = box.checked; redraw(); });

start();
readLink();
if (gl) {
  prepare();
  new ResizeObserver(redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  canvas.addEventListener("webglcontextlost", event => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => { prepare(); redraw(); });
  redraw();
} else say.textContent = "This browser shows no WebGL; open points.ply or scene.glb in another program.";
