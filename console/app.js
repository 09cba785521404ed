// The frame around the pages: where one can go, whether what is shown can be trusted, and the keyboard.

import { get } from './lib/api.js';
import * as clock from './lib/clock.js';
import { h, render } from './lib/dom.js';
import * as live from './lib/live.js';
import { numbers } from './lib/numbers.js';
import { loader } from './lib/page.js';
import { go, namespace, route, to } from './lib/route.js';
import { logOut, look, self } from './lib/session.js';
import { count } from './ui/bits.js';
import { events } from './pages/events.js';
import { graph } from './pages/graph.js';
import { lock } from './pages/lock.js';
import { locks } from './pages/locks.js';
import { login } from './pages/login.js';
import { overview } from './pages/overview.js';
import { server } from './pages/server.js';
import { sessions } from './pages/sessions.js';

/**
 * @typedef {{ update: () => void, close: () => void }} Page
 * @typedef {{ name: string, title: string, key: string, open: (place: Element) => Page, icon: string, number?: (found: import('./types.js').Overview) => number }} Entry
 */

/** @type {Entry[]} */
const PAGES = [
  { name: 'overview', title: 'Overview', key: 'o', open: overview, icon: 'M3 12h4l3-8 4 16 3-8h4' },
  { name: 'locks', title: 'Locks', key: 'l', open: locks, icon: 'M7 11V8a5 5 0 0 1 10 0v3M5 11h14v9H5z', number: (found) => found.locks_held },
  { name: 'graph', title: 'Wait-for graph', key: 'g', open: graph, icon: 'M4 6h6v5H4zM14 13h6v5h-6zM10 8.5h4.5q2.5 0 2.5 2.5v2', number: (found) => found.waiters },
  { name: 'sessions', title: 'Sessions', key: 's', open: sessions, icon: 'M4 5h16v11H4zM9 20h6M12 16v4', number: (found) => found.sessions },
  { name: 'events', title: 'Events', key: 'e', open: events, icon: 'M5 6h14M5 12h14M5 18h9' },
  { name: 'server', title: 'Server', key: 'v', open: server, icon: 'M4 4h16v6H4zM4 14h16v6H4zM7.5 7h.01M7.5 17h.01' },
];
/** Pages that are reached from others. @type {Record<string, (place: Element) => Page>} */
const INNER = { lock };

const app = /** @type {Element} */ (document.getElementById('app'));
let helpIsOpen = false;

function frame() {
  const here = route.get().page;
  const { live: isLive, begun, since } = live.state.get();
  render(
    app,
    h('a', { class: 'skip', href: '#main', onClick: skip }, 'Skip to the page'),
    h(
      'nav',
      { class: 'side', 'aria-label': 'Pages' },
      h('a', { class: 'brand', href: to('overview') }, h('img', { src: '/console/mark.svg', alt: '', width: '26', height: '26' }), h('span', null, 'Leasehold')),
      h('ul', null, PAGES.map((page) => navigation(page, here))),
      h('div', { class: 'side-end' }, namespacePicker(), who(), status(isLive, begun), h('div', { class: 'side-buttons' }, themeButton(), h('button', { class: 'quiet', type: 'button', onClick: toggleHelp, title: 'Keyboard (?)' }, 'Keys'))),
    ),
    h(
      'main',
      { id: 'main', tabindex: '-1', class: begun && !isLive ? 'is-stale' : '' },
      begun && !isLive
        ? h('div', { key: 'banner', class: 'banner', role: 'alert' }, h('strong', null, 'Stale, reconnecting.'), ` What you see is as of ${new Date(since).toLocaleTimeString([], { hour12: false })}; clocks stand still until the server is back.`)
        : null,
      h('div', { key: 'page', id: 'page', island: true, ref: (/** @type {Element} */ element) => (place = element) }),
    ),
    h('div', { id: 'said', role: 'status', 'aria-live': 'polite' }),
  );
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

/** @param {Entry} page @param {string} here */
function navigation(page, here) {
  const found = numbers.get();
  const isHere = here === page.name || (here === 'lock' && page.name === 'locks');
  const number = found && page.number ? page.number(found) : 0;
  return h(
    'li',
    { key: page.name },
    h(
      'a',
      { href: to(page.name), 'aria-current': isHere ? 'page' : undefined, title: `g ${page.key}` },
      h('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, h('path', { d: page.icon })),
      h('span', { class: 'nav-title' }, page.title),
      number > 0 ? h('span', { class: 'nav-number' }, count(number)) : null,
    ),
  );
}

function namespacePicker() {
  const known = new Set(numbers.get()?.namespaces.map((one) => one.namespace) ?? []);
  known.add(namespace());
  known.add('default');
  const names = [...known].sort();
  if (names.length === 1) return null;
  const pick = (/** @type {any} */ event) => go(route.get().page === 'lock' ? 'locks' : route.get().page, { ns: event.target.value === 'default' ? undefined : event.target.value });
  return h('label', { class: 'namespace' }, h('span', null, 'Namespace'), h('select', { value: namespace(), onChange: pick }, names.map((name) => h('option', { key: name, value: name }, name))));
}

/** Who one is, where the server wants to know. */
function who() {
  const found = self.get();
  if (!found || found.credential === 'none') return null;
  const leave = found.credential === 'console' ? h('button', { class: 'quiet', type: 'button', onClick: logOut }, 'Log out') : null;
  return h('div', { class: 'who', 'data-who': found.principal }, h('span', { class: 'cut', title: `may: ${found.verbs.join(', ')}` }, found.principal), leave);
}

/** @param {boolean} isLive @param {boolean} begun */
function status(isLive, begun) {
  const word = isLive ? 'live' : begun ? 'stale' : 'connecting';
  return h('div', { class: `status status-${word}`, 'data-live': word }, h('span', { class: 'dot', 'aria-hidden': 'true' }), word);
}

/* Light and dark: as the system has it, unless told otherwise. */

const THEMES = ['auto', 'light', 'dark'];

function theme() {
  const kept = localStorage.getItem('theme') ?? 'auto';
  return THEMES.includes(kept) ? kept : 'auto';
}

function showTheme() {
  if (theme() === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', theme());
}

function themeButton() {
  const change = () => {
    localStorage.setItem('theme', THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
    showTheme();
    frame();
  };
  return h('button', { class: 'quiet', type: 'button', onClick: change, title: 'Colours: as the system, light, dark' }, `Theme: ${theme()}`);
}

/* The keyboard. */

const KEYS = [
  ['/', 'search or filter on this page'],
  ...PAGES.map((page) => [`g ${page.key}`, page.title]),
  ['j  k', 'next, previous row'],
  ['Enter', 'open the row'],
  ['+  −  0', 'zoom the graph, fit it'],
  ['p', 'pause the events'],
  ['?', 'this list'],
  ['Esc', 'close, or leave the field'],
];

function toggleHelp() {
  helpIsOpen = !helpIsOpen;
  const known = document.querySelector('dialog.help');
  if (known) return known.remove();
  const dialog = document.createElement('dialog');
  dialog.className = 'help';
  dialog.setAttribute('aria-label', 'Keyboard');
  document.body.append(dialog);
  const row = (/** @type {string[]} */ [keys, what]) => [h('dt', null, keys.split(/ +/).map((key) => h('kbd', null, key))), h('dd', null, what)];
  const close = () => dialog.remove();
  render(dialog, h('h2', null, 'Keyboard'), h('dl', null, KEYS.map(row)), h('div', { class: 'buttons' }, h('button', { type: 'button', onClick: close }, 'Close')));
  dialog.addEventListener('close', close);
  dialog.showModal();
}

let isGoing = false;

/** @param {KeyboardEvent} event */
function key(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const isTyping = target.matches('input, textarea, select');
  if (event.key === 'Escape' && isTyping) return target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (isGoing) {
    isGoing = false;
    const page = PAGES.find((one) => one.key === event.key);
    if (page) go(page.name);
    return;
  }
  if (event.key === 'g') {
    isGoing = true;
    setTimeout(() => (isGoing = false), 1500);
  } else if (event.key === '/') {
    event.preventDefault();
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector('[data-search]'));
    field?.focus();
    field?.select();
  } else if (event.key === '?') toggleHelp();
  else if (event.key === 'j' || event.key === 'k') step(event.key === 'j' ? 1 : -1);
}

/** Moves between the rows of whatever list there is. @param {number} by */
function step(by) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[data-row]')]);
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

/* Pages come and go. */

/** @type {Element} */
let place = app;
/** @type {Page | undefined} */
let page;
let shown = '';

function turn() {
  const { page: name, params } = route.get();
  const open = PAGES.find((one) => one.name === name)?.open ?? INNER[name];
  if (!open) return go('overview');
  frame();
  // Another lock, or another namespace, is another page; anything else is the same page changed.
  const identity = `${name} ${params.ns ?? ''} ${name === 'lock' ? params.name : ''}`;
  if (identity === shown) return page?.update();
  page?.close();
  shown = identity;
  const title = PAGES.find((one) => one.name === name)?.title ?? params.name ?? name;
  document.title = `${title} · Leasehold`;
  const fresh = document.createElement('div');
  fresh.className = `page page-${name}`;
  place.replaceChildren(fresh);
  page = open(fresh);
  scrollTo(0, 0);
  showTab();
}

/** On a narrow screen the tabs are a strip that scrolls sideways: brings the active one into view. */
function showTab() {
  document.querySelector('.side [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
}

function start() {
  frame();
  live.start();
  live.state.follow(frame);
  numbers.follow(frame);
  turn();
  route.follow(turn);
  addEventListener('keydown', key);
  loader({
    load: async () => numbers.set(await get('/v1/overview')),
    // A session that is over: the page begins anew, and asks who one is.
    failed: (problem) => problem.status === 401 && location.reload(),
    every: 2000,
  });
  clock.tick();
}

/** A server that cannot be reached now can tell later who one is. */
async function begin() {
  try {
    await look();
  } catch {
    setTimeout(begin, 1000);
    if (self.get() === undefined) render(app, h('main', { class: 'login' }, h('p', { role: 'status' }, 'The server does not answer yet.')));
    return;
  }
  const { page: name, params } = route.get();
  if (self.get() === null || name === 'login') return login(app, params.code);
  start();
}

showTheme();
begin();
