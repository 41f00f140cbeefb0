/** Objects that are made one after the other, and closed the other way round: all of them at the end, or those before one that cannot be made. */

interface Closable {
  close(): void;
}

/** The objects. */
export class Opened implements Closable {
  readonly #objects: Closable[] = [];

  /** Adds an object. */
  keep<T extends Closable>(object: T): T {
    this.#objects.push(object);
    return object;
  }

  close(): void {
    for (const object of this.#objects.splice(0).reverse()) object.close();
  }
}
