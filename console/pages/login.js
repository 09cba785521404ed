// The way in, where the server wants to know who one is: with a token, or by the link that `leasehold console` prints.

import { Problem } from '../lib/api.js';
import { h, render } from '../lib/dom.js';
import { exchange, logIn } from '../lib/session.js';

/** @param {Element} place @param {string | undefined} code */
export function login(place, code) {
  const state = { token: '', fault: '', isBusy: false };
  const attempt = async (/** @type {() => Promise<void>} */ act) => {
    state.isBusy = true;
    draw();
    try {
      await act();
      // The code is spent, and the page begins anew as somebody.
      history.replaceState(null, '', '#/overview');
      location.reload();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      state.fault = error.status === 401 ? 'The server does not know this, or not any more.' : error.message;
      state.token = '';
      state.isBusy = false;
      draw();
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (state.token !== '' && !state.isBusy) attempt(() => logIn(state.token.trim()));
  };
  const type = (/** @type {any} */ event) => {
    state.token = event.target.value;
    draw();
  };
  const draw = () =>
    render(
      place,
      h(
        'main',
        { class: 'login' },
        h('img', { src: '/console/mark.svg', alt: '', width: '40', height: '40' }),
        h('h1', null, 'Leasehold'),
        h(
          'form',
          { onSubmit: submit },
          h('label', null, h('span', null, 'Token'), h('input', { name: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', value: state.token, onInput: type })),
          state.fault ? h('p', { class: 'note note-bad', role: 'alert' }, state.fault) : null,
          h('button', { type: 'submit', disabled: state.token === '' || state.isBusy }, 'Log in'),
        ),
        h('p', { class: 'muted' }, 'Or run ', h('code', null, 'leasehold console'), ': it prints a link that is good for a minute. The page keeps no token; the session ends after two hours without use.'),
      ),
    );
  draw();
  if (code) attempt(() => exchange(code));
}
