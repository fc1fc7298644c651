/** DOM elements, made by properties and text only: no string is ever parsed as HTML. */

type Child = Node | string;
type Properties<K extends keyof HTMLElementTagNameMap> = Partial<Omit<HTMLElementTagNameMap[K], "style">> & { readonly aria?: Readonly<Record<string, string>> };

export function element<K extends keyof HTMLElementTagNameMap>(tag: K, properties: Properties<K> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag), { aria, ...rest } = properties;
  Object.assign(made, rest);
  for (const [name, value] of Object.entries(aria ?? {})) made.setAttribute(`aria-${name}`, value);
  made.append(...children);
  return made;
}

/** A string of others in its own direction: it cannot reorder the text around it. */
export function isolated(text: string): HTMLElement {
  return element("bdi", {}, text);
}

export function required<T extends Element>(selector: string): T {
  const found = document.querySelector<T>(selector);
  if (!found) throw new Error(`no ${selector}`);
  return found;
}
