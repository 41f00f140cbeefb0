/** Controls of the page: faults of the emulated node, and the exchange of the demonstration. */

import type { TopCard } from '../../model/top-model.ts';
import type { WebModel } from '../../model/web-model.ts';
import { isDown, type Pair } from './data/figures.ts';
import { cardText } from './data/format.ts';
import { byId, setText } from './dom.ts';

/** Header with the token; see web-server.ts. */
const TOKEN_HEADER = 'x-gaudi-ucx-token';

/** A fault that a button injects, and the field that it needs in addition to the card. */
const BUTTONS: readonly { readonly text: string; readonly fault: object; readonly needs?: 'peer' | 'port' }[] = [
  { text: 'Links down', fault: { kind: 'link-down' }, needs: 'peer' },
  { text: 'Links up', fault: { kind: 'link-up' }, needs: 'peer' },
  { text: 'NIC port down', fault: { kind: 'link-down' }, needs: 'port' },
  { text: 'NIC port up', fault: { kind: 'link-up' }, needs: 'port' },
  { text: 'Reset', fault: { kind: 'hard-reset' } },
  { text: 'Hang next submission', fault: { kind: 'hang' } },
  { text: 'Lose next completion', fault: { kind: 'completion' } },
  { text: 'No HBM once', fault: { kind: 'exhausted', resource: 'hbm' } },
  { text: 'Malfunction', fault: { kind: 'malfunction' } },
  { text: 'Remove', fault: { kind: 'unplug' } },
  { text: 'Recover', fault: { kind: 'recover' } },
];

/** The controls. */
export class Controls {
  readonly #token: string;
  readonly #card = byId<HTMLSelectElement>('fault-card');
  readonly #peer = byId<HTMLSelectElement>('fault-peer');
  readonly #port = byId<HTMLInputElement>('fault-port');
  readonly #result = byId('fault-result');
  readonly #buttons: readonly HTMLButtonElement[];
  readonly #exchange = byId<HTMLButtonElement>('exchange-start');

  constructor(token: string) {
    this.#token = token;
    byId('fault-form').addEventListener('submit', (event) => event.preventDefault());
    this.#buttons = BUTTONS.map(({ text, fault, needs }) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = text;
      button.addEventListener('click', () => {
        const value =
          needs === undefined ? {} : { [needs]: Number((needs === 'peer' ? this.#peer : this.#port).value) };
        void this.#post('/fault', { card: Number(this.#card.value), ...fault, ...value });
      });
      return button;
    });
    byId('fault-buttons').append(...this.#buttons);
    this.#exchange.addEventListener('click', () => void this.#post('/exchange', {}));
  }

  /** Shows the actions that are available. */
  show({ top, canInject, exchange }: WebModel): void {
    showOptions(this.#card, top.cards, 0);
    showOptions(this.#peer, top.cards, 1);
    for (const control of [...this.#buttons, this.#card, this.#peer, this.#port]) control.disabled = !canInject;
    if (!canInject) setText(this.#result, 'Faults can be injected into emulated cards only.');
    this.#exchange.disabled = exchange.state === 'running' || top.cards.length < 2;
    const { state, stage } = exchange;
    setText(byId('exchange-state'), state === 'running' && stage !== undefined ? `running: ${stage.text}` : state);
    const progress = byId<HTMLProgressElement>('exchange-progress');
    progress.max = stage?.total ?? 1;
    progress.value = state === 'done' ? progress.max : (stage?.done ?? 0);
    const output = byId<HTMLTextAreaElement>('exchange-output');
    if (output.value === exchange.output) return;
    output.value = exchange.output;
    output.scrollTop = output.scrollHeight;
  }

  /** Chooses a card for the next fault. */
  selectCard(minor: number | undefined): void {
    if (minor === undefined) return;
    this.#card.value = String(minor);
    this.#card.focus();
  }

  /** Brings links down, or up again. */
  toggleLink(pair: Pair): void {
    void this.#post('/fault', { card: pair.a, peer: pair.b, kind: isDown(pair) ? 'link-up' : 'link-down' });
  }

  async #post(path: string, body: object): Promise<void> {
    try {
      const response = await fetch(path, {
        method: 'POST',
        headers: { [TOKEN_HEADER]: this.#token },
        body: JSON.stringify(body),
      });
      setText(this.#result, (await response.text()).trim());
    } catch (error) {
      setText(this.#result, `no reply from the server: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

function showOptions(select: HTMLSelectElement, cards: readonly TopCard[], first: number): void {
  if (select.options.length === cards.length) return;
  const chosen = select.value;
  const options = cards.map((card) => new Option(cardText(card), String(card.minor ?? '')));
  select.replaceChildren(...options);
  select.value = chosen === '' ? ((options[first] ?? options[0])?.value ?? '') : chosen;
}
