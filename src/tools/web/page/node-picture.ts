/** The node as a picture: a circle of cards and their links. Links with traffic are highlighted, and links that are down are dashed. */

import type { TopCard, TopModel } from '../../model/top-model.ts';
import { isDown, type Pair, pairsOf } from './data/figures.ts';
import { cardOfMinor, cardText, rateText } from './data/format.ts';
import { setAttribute, setText, svgElement } from './dom.ts';

const SIZE = 460;
const RADIUS = 180;
const CARD = { width: 74, height: 46 };
/** Bytes per second at which a link has its maximum width. */
const FULL_RATE = 10e9;
const WIDTH_MAX = 7;
const OPERATIONAL = 'operational';

interface LinkShape {
  readonly line: SVGLineElement;
  readonly hit: SVGLineElement;
}

interface CardShape {
  readonly group: SVGGElement;
  readonly fill: SVGRectElement;
  readonly text: SVGTextElement;
}

/** The picture. */
export class NodePicture {
  readonly #svg: SVGSVGElement;
  readonly #title: SVGTitleElement;
  readonly #links: SVGGElement;
  readonly #cards: SVGGElement;
  readonly #selectCard: (minor: number | undefined) => void;
  readonly #toggleLink: (pair: Pair) => void;
  readonly #linkShapes = new Map<string, LinkShape>();
  /** By bus id. */
  readonly #cardShapes = new Map<string, CardShape>();
  #pairs: readonly Pair[] = [];
  #shown = '';

  /** The parameters are called on clicks. */
  constructor(parent: HTMLElement, selectCard: (minor: number | undefined) => void, toggleLink: (pair: Pair) => void) {
    this.#selectCard = selectCard;
    this.#toggleLink = toggleLink;
    this.#svg = svgElement('svg', {
      viewBox: `0 0 ${SIZE} ${SIZE}`,
      role: 'group',
      'aria-label': 'Cards and their links',
    });
    this.#title = svgElement('title', {});
    this.#links = svgElement('g', {});
    this.#cards = svgElement('g', {});
    this.#svg.append(this.#title, this.#links, this.#cards);
    parent.append(this.#svg);
  }

  /** Shows a model. */
  show({ cards, links }: TopModel, canInject: boolean): void {
    const buses = cards.map(({ busId, minor }) => `${busId} ${minor}`).join(',');
    if (buses !== this.#shown) this.#place(cards);
    this.#shown = buses;
    this.#pairs = pairsOf(links);
    for (const card of cards) this.#showCard(card);
    for (const [name, shape] of this.#linkShapes) {
      const pair = this.#pairs.find(({ a, b }) => `${a}-${b}` === name);
      // A removed card has no links.
      if (pair === undefined) hideLink(shape);
      else this.#showLink(pair, shape, { cards, canInject });
    }
    const down = this.#pairs.filter(isDown).map(({ a, b }) => `${cardOfMinor(cards, a)} to ${cardOfMinor(cards, b)}`);
    setText(this.#title, `${cards.length} cards; links down: ${down.join(', ') || 'none'}`);
  }

  /** Arranges the cards on a circle, only if their number has changed. */
  #place(cards: readonly TopCard[]): void {
    this.#links.replaceChildren();
    this.#cards.replaceChildren();
    this.#linkShapes.clear();
    this.#cardShapes.clear();
    for (const card of cards) {
      const { x, y } = placeOf(cards.indexOf(card), cards.length);
      const group = svgElement('g', {
        class: 'card',
        transform: `translate(${x} ${y})`,
        tabindex: 0,
        role: 'button',
        'data-card': card.index ?? card.busId,
      });
      const box = { x: -CARD.width / 2, y: -CARD.height / 2, width: CARD.width, height: CARD.height, rx: 6 };
      const fill = svgElement('rect', { ...box, class: 'fill' });
      const title = svgElement('text', { y: -4 });
      title.textContent = cardText(card);
      const text = svgElement('text', { y: 13, class: 'small' });
      group.append(svgElement('rect', { ...box, class: 'body' }), fill, title, text);
      const select = (): void => this.#selectCard(card.minor);
      group.addEventListener('click', select);
      group.addEventListener('keydown', (event) => onKey(event, select));
      this.#cards.append(group);
      this.#cardShapes.set(card.busId, { group, fill, text });
    }
    for (const [index, one] of cards.entries()) {
      for (const other of cards.slice(index + 1)) this.#addLink(one, other, cards);
    }
  }

  #addLink(one: TopCard, other: TopCard, cards: readonly TopCard[]): void {
    const [from, to] = [one, other].map((card) => placeOf(cards.indexOf(card), cards.length));
    if (one.minor === undefined || other.minor === undefined || from === undefined || to === undefined) return;
    const [a, b] = [Math.min(one.minor, other.minor), Math.max(one.minor, other.minor)];
    const place = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
    const line = svgElement('line', { ...place, class: 'link', 'data-link': `${a}-${b}`, visibility: 'hidden' });
    const hit = svgElement('line', { ...place, class: 'hit' });
    const toggle = (): void => {
      const pair = this.#pairs.find((each) => each.a === a && each.b === b);
      if (pair !== undefined && hit.hasAttribute('tabindex')) this.#toggleLink(pair);
    };
    hit.addEventListener('click', toggle);
    hit.addEventListener('keydown', (event) => onKey(event, toggle));
    this.#links.append(line, hit);
    this.#linkShapes.set(`${a}-${b}`, { line, hit });
  }

  #showCard(card: TopCard): void {
    const { busId, status, hbmUsedBytes, hbmBytes, hostToDevice, deviceToHost, inUse } = card;
    const { group, fill, text } = this.#cardShapes.get(busId)!;
    const share = hbmBytes === 0 ? 0 : hbmUsedBytes / hbmBytes;
    setAttribute(fill, 'height', String(CARD.height * share));
    setAttribute(fill, 'y', String(CARD.height / 2 - CARD.height * share));
    const isBroken = status !== OPERATIONAL;
    setAttribute(group, 'class', isBroken ? 'card broken' : 'card');
    setText(text, isBroken ? status : `${rateText((hostToDevice ?? 0) + (deviceToHost ?? 0))} GB/s`);
    const percent = Math.round(share * 100);
    setAttribute(
      group,
      'aria-label',
      `${card.label}: ${status}, ${inUse ? 'in use' : 'free'}, ${percent} % of HBM used`,
    );
  }

  #showLink(pair: Pair, { line, hit }: LinkShape, { cards, canInject }: LinkContext): void {
    const { a, b, up, total, bytesPerSecond } = pair;
    setAttribute(line, 'visibility', total > 0 ? 'visible' : 'hidden');
    const state = isDown(pair) ? 'down' : up < total ? 'part' : bytesPerSecond > 0 ? 'busy' : 'idle';
    setAttribute(line, 'class', `link ${state}`);
    setAttribute(line, 'data-state', state);
    const share = Math.min(1, Math.sqrt(bytesPerSecond / FULL_RATE));
    line.style.strokeWidth = state === 'busy' ? String(1.5 + WIDTH_MAX * share) : '';
    const links = `links of ${cardOfMinor(cards, a)} and ${cardOfMinor(cards, b)}: ${up} of ${total} up, ${rateText(bytesPerSecond)} GB/s`;
    if (canInject && total > 0) {
      setAttribute(hit, 'tabindex', '0');
      setAttribute(hit, 'role', 'button');
      setAttribute(hit, 'aria-label', `${links}; bring them ${isDown(pair) ? 'up' : 'down'}`);
    } else {
      hit.removeAttribute('tabindex');
    }
  }
}

/** Surroundings of a link. */
interface LinkContext {
  readonly cards: readonly TopCard[];
  readonly canInject: boolean;
}

/** Hides a link of a removed card; it reappears with the card. */
function hideLink({ line, hit }: LinkShape): void {
  setAttribute(line, 'visibility', 'hidden');
  setAttribute(line, 'class', 'link');
  line.removeAttribute('data-state');
  hit.removeAttribute('tabindex');
  hit.removeAttribute('role');
}

function placeOf(index: number, count: number): { readonly x: number; readonly y: number } {
  const angle = (2 * Math.PI * index) / count - Math.PI / 2;
  const radius = count === 1 ? 0 : RADIUS;
  return { x: SIZE / 2 + radius * Math.cos(angle), y: SIZE / 2 + radius * Math.sin(angle) };
}

function onKey(event: KeyboardEvent, action: () => void): void {
  if (event.key !== 'Enter' && event.key !== ' ') return;
  event.preventDefault();
  action();
}
