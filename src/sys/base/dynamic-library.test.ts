import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { CompilerFolder, compilerSkipReason } from '../../../test/fixtures/libucp/c-library.ts';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { startWorker } from '../process/worker-thread.ts';
import { DynamicLibrary, textAt } from './dynamic-library.ts';

const reason = compilerSkipReason();
if (reason !== undefined) console.info(`libraries of C not compiled: ${reason}`);
const folder = new CompilerFolder();
afterAll(() => folder[Symbol.dispose]());

describe('DynamicLibrary', () => {
  it('opens the first existing library, and calls its functions', () => {
    const library = new DynamicLibrary(['libnot-there.so.9', 'libm.so.6', 'libc.so.6']);
    expect(library.name).toBe('libm.so.6');
    const hypot = library.function<(a: number, b: number) => number>('hypot', 'double', ['double', 'double']);
    expect(hypot(3, 4)).toBe(5);
  });

  it('returns the file of a symbol, also in a library that it depends on', () => {
    const library = new DynamicLibrary(['libm.so.6']);
    expect(library.fileOf('hypot')).toMatch(/^\/.*\/libm\.so\.6$/);
    expect(library.fileOf('getpid')).toMatch(/^\/.*\/libc\.so\.6$/);
    expect(() => library.fileOf('no_such_function')).toThrow(expect.objectContaining({ code: 'ERR_LIBRARY_SYMBOL' }));
  });

  it('reports the symbols that exist', () => {
    const library = new DynamicLibrary(['libm.so.6']);
    expect([library.has('hypot'), library.has('no_such_function')]).toEqual([true, false]);
    expect(() => library.function('no_such_function', 'int', [])).toThrow(
      expect.objectContaining({
        code: 'ERR_LIBRARY_SYMBOL',
        message: 'library libm.so.6 has no symbol no_such_function',
        details: { library: 'libm.so.6', symbol: 'no_such_function' },
      }),
    );
    expect(() => library.symbolAddress('no_such_datum')).toThrow(
      expect.objectContaining({ code: 'ERR_LIBRARY_SYMBOL' }),
    );
  });

  it('reports each name if no library exists', () => {
    expect(() => new DynamicLibrary(['libnot-there.so.9', '/not/there.so'])).toThrow(
      expect.objectContaining({
        code: 'ERR_LIBRARY_NOT_FOUND',
        message: expect.stringMatching(/libnot-there\.so\.9.*: cannot open.*; \/not\/there\.so: cannot open/),
      }),
    );
  });

  it('reports why an existing library cannot be loaded, and does not try the others', () => {
    const path = folder.file('text.so', 'this is not a library');
    expect(() => new DynamicLibrary([path, 'libm.so.6'])).toThrow(
      expect.objectContaining({
        code: 'ERR_LIBRARY_UNUSABLE',
        message: expect.stringMatching(/text\.so cannot be loaded: .*(file too short|invalid ELF header)/),
        details: { library: path },
      }),
    );
  });

  it.skipIf(reason !== undefined)('reports the name of a missing dependency (needs cc)', () => {
    const needed = folder.library('libneeded.so', 'int needed(void) { return 1; }');
    const needing = folder.library('libneeding.so', 'int needed(void); int f(void) { return needed(); }', [needed]);
    rmSync(needed);
    expect(() => new DynamicLibrary([needing])).toThrow(
      expect.objectContaining({
        code: 'ERR_LIBRARY_UNUSABLE',
        message: expect.stringMatching(/libneeding\.so cannot be loaded: .*libneeded\.so: cannot open/),
      }),
    );
  });

  it.skipIf(reason !== undefined)('reads data (needs cc)', () => {
    const path = folder.library('libdata.so', 'const char *words[] = {"one", "two"}; const char text[] = "three";');
    const library = new DynamicLibrary([path]);
    expect(textAt(library.symbolAddress('text'))).toBe('three');
  });

  it.skipIf(reason !== undefined)('stays loaded when the thread that opened it has ended (needs cc)', async () => {
    // The library would count from 0 again if it had been unloaded.
    const path = folder.library('libcounter.so', 'static int n; int count(void) { return ++n; }');
    const module = builtSpecifier(new URL('./dynamic-library.ts', import.meta.url));
    const program = `
      import { parentPort } from 'node:worker_threads';
      import { DynamicLibrary } from ${module};
      parentPort.postMessage(new DynamicLibrary([${JSON.stringify(path)}]).function('count', 'int', [])());`;
    const counts: number[] = [];
    folder.file('package.json', '{"type":"module"}');
    folder.file('counter.js', program);
    for (let thread = 0; thread < 2; thread++) {
      const worker = startWorker(pathToFileURL(join(folder.path, 'caller.js')).href, './counter');
      worker.on('message', (count: number) => counts.push(count));
      await new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject));
    }
    expect(counts).toEqual([1, 2]);
  });
});
