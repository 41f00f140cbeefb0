/** Objects that are made one after the other and closed in reverse order: all at the end, or the existing ones if one cannot be made. */

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
