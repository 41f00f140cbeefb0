import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { CompilerFolder } from '../../../test/fixtures/libucp/c-library.ts';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { getEnvironment, setEnvironment } from './process.ts';

const NAME = 'GAUDI_UCX_ENVIRONMENT_TEST';

describe('the environment of C', () => {
  it('is set, read, emptied and removed', () => {
    expect(getEnvironment(NAME)).toBeUndefined();
    setEnvironment(NAME, 'a value');
    expect(getEnvironment(NAME)).toBe('a value');
    setEnvironment(NAME, '');
    expect(getEnvironment(NAME)).toBe('');
    setEnvironment(NAME, undefined);
    setEnvironment(NAME, undefined);
    expect(getEnvironment(NAME)).toBeUndefined();
  });

  it('is that of the main thread', () => {
    const module = builtSpecifier(new URL('./process.ts', import.meta.url));
    const program = `
      import { getEnvironment, setEnvironment } from ${module};
      process.env.${NAME} = 'of Node.js';
      const first = getEnvironment('${NAME}');
      setEnvironment('${NAME}', 'of C');
      console.log(first + ', ' + process.env.${NAME});`;
    const options = ['--input-type=module', '-e', program];
    expect(execFileSync(process.execPath, options, { encoding: 'utf8' })).toBe('of Node.js, of C\n');
  });

  it('is changed by one thread at a time', () => {
    const module = builtSpecifier(new URL('./process.ts', import.meta.url));
    const program = `
      import { getEnvironment, setEnvironment, withEnvironmentLock } from ${module};
      import { isMainThread, threadId, Worker } from 'node:worker_threads';
      const change = () => {
        setEnvironment('${NAME}', String(threadId));
        for (let i = 0; i < 20; i++) withEnvironmentLock(() => getEnvironment('${NAME}'));
        const found = getEnvironment('${NAME}');
        setEnvironment('${NAME}', undefined);
        return found === String(threadId);
      };
      if (isMainThread) for (let i = 0; i < 3; i++) new Worker(new URL(import.meta.url));
      let wrong = 0;
      for (let i = 0; i < 300; i++) if (!withEnvironmentLock(change)) wrong += 1;
      console.log(wrong);`;
    using folder = new CompilerFolder();
    const path = folder.file('threads.mjs', program);
    expect(execFileSync(process.execPath, [path], { encoding: 'utf8' })).toBe('0\n'.repeat(4));
  });

  it.each(['', 'A=B', 'A\0B'])('rejects the name %j', (name) => {
    expect(() => setEnvironment(name, 'x')).toThrow(
      'argument name must not be empty, and must not contain = or a zero byte',
    );
  });

  it('rejects a value that C would truncate', () => {
    expect(() => setEnvironment(NAME, 'a\0b')).toThrow('argument value must not contain a zero byte');
  });
});
