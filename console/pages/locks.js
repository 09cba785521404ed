// What is held: a tree of names on the left, a list that may be very long on the right.
//
// The list is paged by the server. Each page begins where the one before it ended, so pages are loaded in order; only
// those in sight are asked for again. If a page then ends elsewhere than before, those behind it are loaded anew when
// they come into sight.

import { get, Problem } from '../lib/api.js';
import { h, render } from '../lib/dom.js';
import { numbers } from '../lib/numbers.js';
import { loader } from '../lib/page.js';
import { adjust, go, route, to } from '../lib/route.js';
import { count, empty, lease, lockLink, modeText, problemNote, stateBadge, token } from '../ui/bits.js';

/**
 * @typedef {import('../types.js').LockSummary} LockSummary
 * @typedef {import('../types.js').Branch} Branch
 * @typedef {{ token: string | undefined, size: number, rows: LockSummary[], at: number, next: string | null, version: number }} Page
 * @typedef {{ branches: Branch[], more: string | null }} Level
 */

const ROW = 38;
const PAGE = 200;
const PAGE_LARGE = 1000;
/** Rows above and below those in sight. */
const AROUND = 8;

/** @param {Element} place */
export function locks(place) {
  /** @type {Page[]} */
  let pages = [];
  /** Raised by whatever may have changed the list. */
  let version = 0;
  let first = 0;
  let last = 40;
  let isBusy = false;
  /** @type {Problem | null} */
  let problem = null;
  /** @type {Map<string, Level>} */
  const levels = new Map();
  /** @type {HTMLElement | null} */
  let list = null;
  let asked = '';

  const query = () => parse(route.get().params.q ?? '', route.get().params.prefix ?? '');
  const draw = () => render(place, view());

  const total = () => pages.reduce((all, page) => all + page.rows.length, 0);
  const isComplete = () => pages.length > 0 && pages[pages.length - 1].next === null;

  /** Loads what is in sight, one page after the other. */
  const fill = async () => {
    if (isBusy) return;
    isBusy = true;
    const mine = asked;
    try {
      let start = 0;
      for (let number = 0; ; number++) {
        const page = pages[number];
        const isInSight = start <= last && (!page || start + page.rows.length >= first);
        if (page && (!isInSight || page.version === version)) {
          start += page.rows.length;
          if (page.next === null) break;
          continue;
        }
        if (!page && start > last) break;
        const before = pages[number - 1];
        const from = before ? before.next : undefined;
        if (before && !before.next) break;
        // Somebody drags the bar far down: go there in longer steps.
        const size = page?.size ?? (last - start > 4 * PAGE ? PAGE_LARGE : PAGE);
        const found = await get('/v1/locks', { ...query().params, page_size: size, page_token: from ?? undefined });
        if (asked !== mine) return;
        pages[number] = { token: from ?? undefined, size, rows: found.locks, at: found.at, next: found.next_page_token, version };
        const behind = pages[number + 1];
        if (found.next_page_token === null) pages.length = number + 1;
        else if (behind && behind.token !== found.next_page_token) {
          behind.token = found.next_page_token;
          for (const other of pages.slice(number + 1)) other.version = -1;
        }
        start += found.locks.length;
        problem = null;
        draw();
        if (number === 0 && found.locks.length > 0) mark();
        if (found.next_page_token === null) break;
      }
    } finally {
      isBusy = false;
    }
  };

  const loadTree = async () => {
    const open = ['', ...opened(query().prefix)];
    for (const prefix of open) {
      const found = await get('/v1/tree', { prefix, page_size: 200 });
      levels.set(prefix, { branches: found.branches, more: found.next_page_token });
    }
  };

  const loading = loader({
    load: async () => {
      version += 1;
      await Promise.all([fill(), loadTree()]);
      draw();
    },
    failed: (fault) => {
      problem = fault;
      draw();
    },
  });

  const reset = () => {
    const now = JSON.stringify(query());
    if (now === asked) return draw();
    asked = now;
    pages = [];
    first = 0;
    if (list) list.scrollTop = 0;
    draw();
    loading.again();
  };

  const scrolled = () => {
    if (!list) return;
    first = Math.max(0, Math.floor(list.scrollTop / ROW) - AROUND);
    last = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + AROUND;
    draw();
    fill().catch((fault) => {
      if (!(fault instanceof Problem)) throw fault;
    });
  };

  /** @param {number} index @returns {{ row: LockSummary, at: number } | null} */
  const rowAt = (index) => {
    let start = 0;
    for (const page of pages) {
      if (index < start + page.rows.length) return { row: page.rows[index - start], at: page.at };
      start += page.rows.length;
    }
    return null;
  };

  const view = () => {
    const { prefix, isPlain, params } = query();
    const known = total();
    // What is not loaded yet has its room already, if we know how much it is.
    const all = isComplete() || !isPlain ? known : Math.max(known, numbers.get()?.locks_held ?? 0);
    return [
      h(
        'header',
        { class: 'page-head' },
        h('div', null, h('h1', null, 'Locks'), h('p', null, `${count(all)}${isComplete() ? '' : '+'} held${prefix ? ` under ${prefix}` : ''}`)),
        search(),
      ),
      problemNote(problem),
      h(
        'div',
        { class: 'locks' },
        h('nav', { class: 'tree card', 'aria-label': 'Names' }, tree('', levels, prefix)),
        h(
          'div',
          { class: 'card list-card' },
          crumbs(prefix),
          h('div', { class: 'list-head', 'aria-hidden': 'true' }, ['lock', 'holder', 'mode', 'token', 'lease', 'queue'].map((name) => h('span', null, name))),
          h(
            'div',
            { class: 'list', role: 'table', 'aria-rowcount': String(all), 'aria-label': 'Held locks', onScroll: scrolled, ref: (/** @type {HTMLElement} */ element) => (list = element) },
            known === 0 && isComplete() ? nothing(params) : null,
            h('div', { class: 'list-space', style: { height: `${all * ROW}px` } }, rows(all)),
          ),
        ),
      ),
    ];
  };

  /** @param {number} all */
  const rows = (all) => {
    const shown = [];
    for (let index = first; index < Math.min(last, all); index++) {
      const found = rowAt(index);
      shown.push(found ? row(found.row, found.at, index) : h('div', { class: 'row row-coming', key: `coming ${index}`, style: top(index) }, 'loading…'));
    }
    return shown;
  };

  const search = () => {
    const change = (/** @type {any} */ event) => {
      adjust({ q: event.target.value });
    };
    return h(
      'label',
      { class: 'search' },
      h('span', { class: 'hidden' }, 'Search'),
      h('input', { type: 'search', 'data-search': true, placeholder: 'starts with…   owner:   state:   session:', value: route.get().params.q ?? '', onInput: change, spellcheck: 'false' }),
      h('kbd', null, '/'),
    );
  };

  asked = JSON.stringify(query());
  draw();
  requestAnimationFrame(scrolled);
  const resized = () => scrolled();
  addEventListener('resize', resized);
  return {
    update: reset,
    close() {
      loading.close();
      removeEventListener('resize', resized);
    },
  };
}

/** Notes when the first rows could be seen. */
function mark() {
  const name = 'locks-shown';
  if (performance.getEntriesByName(name).length === 0) requestAnimationFrame(() => performance.mark(name));
}

/** @param {number} index */
function top(index) {
  return { transform: `translateY(${index * ROW}px)` };
}

/** @param {LockSummary} one @param {number} at @param {number} index */
function row(one, at, index) {
  const [holder] = one.holders;
  const others = one.holders_total - 1;
  const open = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter') go('lock', { name: one.lock });
  };
  return h(
    'div',
    { class: 'row', role: 'row', tabindex: '0', 'data-row': true, 'data-lock': one.lock, 'aria-rowindex': String(index + 1), key: `${one.lock} ${holder?.fencing_token ?? ''}`, style: top(index), onKeydown: open },
    h('span', { role: 'cell', class: 'cut' }, lockLink(one.lock), one.state === 'held' ? null : stateBadge(one.state)),
    h('span', { role: 'cell', class: 'cut' }, holder?.owner_id ?? '', others > 0 ? h('span', { class: 'muted' }, ` +${count(others)}`) : null),
    h('span', { role: 'cell', class: 'muted' }, holder ? modeText(holder.mode, holder.permits) : ''),
    h('span', { role: 'cell' }, token(holder?.fencing_token)),
    h('span', { role: 'cell' }, holder ? lease(at, holder) : null),
    h('span', { role: 'cell', class: 'right' }, one.waiters_total > 0 ? h('span', { class: 'badge wait' }, count(one.waiters_total), h('span', { class: 'wide-only' }, ' waiting')) : h('span', { class: 'muted' }, '–')),
  );
}

/** @param {Record<string, string>} params */
function nothing(params) {
  return Object.keys(params).length > 0
    ? empty('Nothing that is held matches.', h('p', null, 'A search finds names that start with the text. owner:worker-a, state:recovering and session:12 narrow it.'))
    : empty('Nothing is held.', h('p', null, 'The ', h('a', { href: to('overview') }, 'overview'), ' tells how to take a lock.'));
}

/* The tree. */

/** @param {string} prefix @param {Map<string, Level>} levels @param {string} chosen @returns {import('../lib/dom.js').VNode | null} */
function tree(prefix, levels, chosen) {
  const level = levels.get(prefix);
  if (!level) return null;
  const open = new Set(opened(chosen));
  return h(
    'ul',
    null,
    prefix === '' ? h('li', { key: 'all' }, h('a', { href: to('locks'), 'aria-current': chosen === '' ? 'true' : undefined, class: 'branch' }, h('span', { class: 'cut' }, 'All names'))) : null,
    level.branches.map((branch) => {
      const name = branch.name.slice(prefix.length);
      const number = h('span', { class: 'nav-number' }, `${count(branch.locks)}${branch.is_partial ? '+' : ''}`);
      if (branch.is_lock) return h('li', { key: branch.name }, h('a', { class: 'leaf', href: to('lock', { name: branch.name }), title: branch.name }, h('span', { class: 'cut' }, name)));
      const isOpen = open.has(branch.name);
      return h(
        'li',
        { key: branch.name },
        h('a', { class: 'branch', href: to('locks', { prefix: isOpen && chosen === branch.name ? parent(branch.name) : branch.name }), 'aria-expanded': String(isOpen), 'aria-current': chosen === branch.name ? 'true' : undefined, title: branch.name }, h('span', { class: 'twist', 'aria-hidden': 'true' }, isOpen ? '▾' : '▸'), h('span', { class: 'cut' }, name), number),
        isOpen ? tree(branch.name, levels, chosen) : null,
      );
    }),
    level.more ? h('li', { class: 'muted', key: 'more' }, 'more: narrow it with the search') : null,
  );
}

/** The branches that are open when this one is chosen: it, and those above it. @param {string} prefix */
function opened(prefix) {
  const open = [];
  for (let at = prefix; at; at = parent(at)) open.unshift(at);
  return open;
}

/** @param {string} prefix */
function parent(prefix) {
  if (prefix === 'inode:' || prefix === 'path:/') return '';
  const cut = prefix.slice(0, -1).lastIndexOf('/');
  return cut < 0 ? '' : prefix.slice(0, cut + 1);
}

/** @param {string} prefix */
function crumbs(prefix) {
  if (!prefix) return null;
  const parts = opened(prefix);
  return h('p', { class: 'crumbs' }, h('a', { href: to('locks') }, 'all'), parts.map((part, at) => [' › ', h('a', { href: to('locks', { prefix: part }), key: part }, part.slice((parts[at - 1] ?? '').length))]));
}

/**
 * What is searched for: the start of a name, and words such as `owner:worker-a`.
 * @param {string} text @param {string} prefix
 */
function parse(text, prefix) {
  /** @type {Record<string, string>} */
  const params = {};
  const words = text.trim().split(/\s+/).filter(Boolean);
  const names = [];
  for (const word of words) {
    const found = /^(owner|state|session):(.+)$/.exec(word);
    if (found) params[{ owner: 'owner_id', state: 'state', session: 'session_id' }[found[1]] ?? ''] = found[2];
    else if (!/^(owner|state|session):$/.test(word)) names.push(word);
  }
  const start = names.join(' ');
  const whole = start.startsWith(prefix) ? start : prefix + start;
  if (whole) params.prefix = whole;
  return { prefix, params, isPlain: Object.keys(params).length === 0 };
}
