// Asks before something is done that cannot be undone: the name has to be typed, and a reason given.

import { Problem } from '../lib/api.js';
import { h, render } from '../lib/dom.js';
import { say } from './bits.js';

/**
 * @param {{ title: string, warning: string, word: string, verb: string, act: (reason: string) => Promise<string> }} what
 *   `word` is what must be typed; `act` does it and says what came of it
 */
export function confirmWithReason({ title, warning, word, verb, act }) {
  const dialog = document.createElement('dialog');
  dialog.className = 'confirm';
  dialog.setAttribute('aria-label', title);
  document.body.append(dialog);
  const state = { typed: '', reason: '', fault: '', isBusy: false };
  const isReady = () => state.typed === word && state.reason.trim() !== '' && !state.isBusy;
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isReady()) return;
    state.isBusy = true;
    draw();
    try {
      say(await act(state.reason.trim()));
      close();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      state.fault = error.message;
      state.isBusy = false;
      draw();
    }
  };
  /** @param {'typed' | 'reason'} field @param {any} event */
  const type = (field, event) => {
    state[field] = event.target.value;
    draw();
  };
  const draw = () =>
    render(
      dialog,
      h(
        'form',
        { method: 'dialog', onSubmit: submit },
        h('h2', null, title),
        h('p', null, warning),
        h(
          'label',
          null,
          h('span', null, 'Type ', h('code', null, word), ' to confirm'),
          h('input', { name: 'word', autocomplete: 'off', spellcheck: 'false', value: state.typed, onInput: (/** @type {Event} */ event) => type('typed', event) }),
        ),
        h(
          'label',
          null,
          h('span', null, 'Reason, for the audit log and the holder'),
          h('input', { name: 'reason', autocomplete: 'off', maxlength: '200', value: state.reason, onInput: (/** @type {Event} */ event) => type('reason', event) }),
        ),
        state.fault && h('p', { class: 'note note-bad', role: 'alert' }, state.fault),
        h(
          'div',
          { class: 'buttons' },
          h('button', { type: 'button', onClick: close }, 'Cancel'),
          h('button', { type: 'submit', class: 'danger', disabled: !isReady() }, verb),
        ),
      ),
    );
  draw();
  dialog.addEventListener('cancel', () => dialog.remove());
  dialog.showModal();
}
