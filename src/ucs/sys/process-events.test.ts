import { spawnSync } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { atSignal } from './process-events.ts';

const MODULE = builtSpecifier(new URL('./process-events.ts', import.meta.url));

function run(program: string): { status: number | null; stdout: string; stderr: string } {
  const flags = ['--input-type=module', '-e'];
  return spawnSync(process.execPath, [...flags, `import { atExit, atSignal } from ${MODULE}; ${program}`], {
    encoding: 'utf8',
  });
}

describe('the end of a process', () => {
  it('runs all callbacks in order, except removed ones', () => {
    const { status, stdout } = run(
      `atExit(() => console.log(1)); atExit(() => console.log(2))(); atExit(() => console.log(3));`,
    );
    expect({ status, stdout }).toEqual({ status: 0, stdout: '1\n3\n' });
  });

  it('runs the other callbacks when one throws, and reports the error', () => {
    const { status, stdout, stderr } = run(
      `atExit(() => { throw new Error('the first'); }); atExit(() => console.log('the second'));`,
    );
    expect(stdout).toBe('the second\n');
    expect(stderr).toContain('Error: the first');
    expect(status).not.toBe(0);
  });

  it('runs the callbacks after process.exit and after an exception', () => {
    expect(run(`atExit(() => console.log('end')); process.exit(3);`)).toMatchObject({ status: 3, stdout: 'end\n' });
    expect(run(`atExit(() => console.log('end')); throw new Error('no');`)).toMatchObject({
      status: 1,
      stdout: 'end\n',
    });
  });
});

describe('a signal', () => {
  it('runs its callbacks, and ends the process once they are removed', () => {
    const program = `
      const stop = atSignal('SIGUSR2', () => {
        console.log('heard');
        stop();
        process.kill(process.pid, 'SIGUSR2');
      });
      setInterval(() => {}, 1000);
      process.kill(process.pid, 'SIGUSR2');`;
    expect(run(program)).toMatchObject({ status: null, signal: 'SIGUSR2', stdout: 'heard\n' });
  });
});

describe('the callbacks of a signal', () => {
  const heard: string[] = [];
  const stops: (() => void)[] = [];
  const note = (name: string): (() => void) => {
    const stop = atSignal('SIGPWR', () => heard.push(name));
    stops.push(stop);
    return stop;
  };
  afterEach(() => {
    for (const stop of stops.splice(0)) stop();
    heard.length = 0;
    expect(process.listenerCount('SIGPWR')).toBe(0);
  });

  it('stay when another callback is removed', () => {
    const stop = note('removed');
    note('kept');
    stop();
    process.emit('SIGPWR', 'SIGPWR');
    expect(heard).toEqual(['kept']);
  });

  it('have one listener of the process, which leaves with the last of them', () => {
    const [first, second] = [note('one'), note('two')];
    expect(process.listenerCount('SIGPWR')).toBe(1);
    for (const stop of [first, second]) stop();
    expect(process.listenerCount('SIGPWR')).toBe(0);
  });

  it('are heard after all earlier ones were removed', () => {
    note('earlier')();
    note('later');
    process.emit('SIGPWR', 'SIGPWR');
    expect(heard).toEqual(['later']);
  });

  it('all run if one of them throws, whose error is thrown at the end', () => {
    const first = new Error('the first');
    for (const error of [first, new Error('the second')]) {
      const callback = (): never => {
        throw error;
      };
      stops.push(atSignal('SIGPWR', callback));
    }
    note('behind');
    expect(() => process.emit('SIGPWR', 'SIGPWR')).toThrow(first);
    expect(heard).toEqual(['behind']);
  });
});
