/**
 * A plugin of the bundler for the tests: in a bundle, `import.meta` of a module says where its source is, as the tests name files beside it. It leaves
 * `import.meta` in programs that tests write as text alone.
 */

import { dirname } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Plugin } from 'rolldown';
import { parseSync, Visitor } from 'rolldown/utils';

/** The plugin. */
export const sourceMeta: Plugin = {
  name: 'source-meta',
  transform: {
    filter: { id: /\.ts$/, code: /import\.meta\.(url|dirname|filename)/ },
    handler: (code, id) => ({ code: withMeta(code, id), map: null }),
  },
};

/** The code of a module, with what its `import.meta` is; the lines stay. */
function withMeta(code: string, file: string): string {
  const values: Readonly<Record<string, string>> = {
    url: pathToFileURL(file).href,
    dirname: dirname(file),
    filename: file,
  };
  const edits: (readonly [start: number, end: number, text: string])[] = [];
  new Visitor({
    MemberExpression: ({ object, property, start, end }) => {
      if (object.type !== 'MetaProperty' || property.type !== 'Identifier') return;
      const value = values[property.name];
      if (value !== undefined) edits.push([start, end, JSON.stringify(value)]);
    },
  }).visit(parseSync(file, code).program);
  return edits.reduceRight((text, [start, end, value]) => text.slice(0, start) + value + text.slice(end), code);
}
