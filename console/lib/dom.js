// A page is a function from what is known to a tree of plain objects; `render` makes the document look like it, and
// touches only what differs, so that focus, selection and scrolling survive. Text is only ever put in as text.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @typedef {{ tag: string, key: string | number | undefined, props: Props, children: VNode[], text: string }} VNode
 * @typedef {Record<string, any>} Props
 * @typedef {VNode | string | number | null | undefined | false | any[]} Child
 */

/** @type {WeakMap<Node, { node: Node, vnode: VNode }[]>} */
const shown = new WeakMap();
/** @type {WeakMap<Element, Map<string, (event: Event) => void>>} */
const handlers = new WeakMap();

/**
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  const { key, ...rest } = props ?? {};
  // An island keeps children that `render` does not know: another node of the same tag must never take its element over.
  if (rest.island && key === undefined) throw new Error('an island needs a key');
  return { tag, key, props: rest, children: flat(children), text: '' };
}

/** @param {Child[]} children @returns {VNode[]} */
function flat(children) {
  /** @type {VNode[]} */
  const list = [];
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) list.push(...flat(child));
    else if (typeof child === 'object') list.push(child);
    else list.push({ tag: '#text', key: undefined, props: {}, children: [], text: String(child) });
  }
  return list;
}

/** @param {Element} parent @param {...Child} children */
export function render(parent, ...children) {
  patchChildren(parent, flat(children));
}

/** @param {Element} parent @param {VNode[]} next */
function patchChildren(parent, next) {
  const before = shown.get(parent) ?? [];
  /** @type {Map<string, { node: Node, vnode: VNode }[]>} */
  const free = new Map();
  for (const entry of before) {
    const name = nameOf(entry.vnode);
    const list = free.get(name);
    if (list) list.push(entry);
    else free.set(name, [entry]);
  }
  /** @type {{ node: Node, vnode: VNode }[]} */
  const after = [];
  /** @type {Set<Node>} */
  const kept = new Set();
  for (const vnode of next) {
    const known = free.get(nameOf(vnode))?.shift();
    const node = known ? known.node : create(vnode, parent);
    if (known) patch(node, known.vnode, vnode);
    after.push({ node, vnode });
    kept.add(node);
  }
  for (const { node } of before) if (!kept.has(node)) parent.removeChild(node);
  let at = parent.firstChild;
  for (const { node } of after) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  shown.set(parent, after);
}

/** Two nodes of one name can become each other. @param {VNode} vnode */
function nameOf(vnode) {
  return vnode.key === undefined ? vnode.tag : `${vnode.tag} ${vnode.key}`;
}

/** @param {VNode} vnode @param {Element} parent @returns {Node} */
function create(vnode, parent) {
  if (vnode.tag === '#text') return document.createTextNode(vnode.text);
  const isSvg = vnode.tag === 'svg' || (parent.namespaceURI === SVG && parent.tagName !== 'foreignObject');
  const element = isSvg ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
  patchProps(element, {}, vnode.props);
  patchChildren(element, vnode.children);
  // What is chosen can only be chosen when it is there.
  if (vnode.tag === 'select') setProp(element, 'value', vnode.props.value);
  vnode.props.ref?.(element);
  return element;
}

/** @param {Node} node @param {VNode} before @param {VNode} after */
function patch(node, before, after) {
  if (after.tag === '#text') {
    if (before.text !== after.text) node.nodeValue = after.text;
    return;
  }
  const element = /** @type {Element} */ (node);
  patchProps(element, before.props, after.props);
  if (!after.props.island) patchChildren(element, after.children);
}

/** @param {Element} element @param {Props} before @param {Props} after */
function patchProps(element, before, after) {
  for (const name of Object.keys(before)) if (!(name in after)) setProp(element, name, undefined);
  for (const [name, value] of Object.entries(after)) {
    if (name === 'style') setStyle(element, before.style ?? {}, value ?? {});
    else if (before[name] !== value || name === 'value' || name === 'checked') setProp(element, name, value);
  }
}

/** @param {Element} element @param {string} name @param {any} value */
function setProp(element, name, value) {
  if (name === 'ref' || name === 'island' || name === 'style') return;
  if (name.startsWith('on')) return setHandler(element, name.slice(2).toLowerCase(), value);
  if ((name === 'value' || name === 'checked') && element.matches('input, select, textarea')) {
    const input = /** @type {any} */ (element);
    if (value !== undefined && input[name] !== value) input[name] = value;
    return;
  }
  if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? '' : String(value));
}

/** @param {Element} element @param {string} type @param {((event: Event) => void) | undefined} handler */
function setHandler(element, type, handler) {
  let own = handlers.get(element);
  if (!own) handlers.set(element, (own = new Map()));
  if (!own.has(type)) element.addEventListener(type, (event) => handlers.get(element)?.get(type)?.(event));
  own.set(type, handler ?? (() => {}));
}

/** Through the object model: the policy of the page forbids style attributes. */
/** @param {Element} element @param {Record<string, string>} before @param {Record<string, string>} after */
function setStyle(element, before, after) {
  const { style } = /** @type {HTMLElement} */ (element);
  for (const name of Object.keys(before)) if (!(name in after)) style.removeProperty(name);
  for (const [name, value] of Object.entries(after)) if (before[name] !== value) style.setProperty(name, value);
}

/**
 * A value that others can follow.
 * @template T
 * @param {T} value
 */
export function signal(value) {
  /** @type {Set<(value: T) => void>} */
  const followers = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(value, next)) return;
      value = next;
      for (const follower of [...followers]) follower(value);
    },
    /** @param {(value: T) => void} follower @returns {() => void} */
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
  };
}
