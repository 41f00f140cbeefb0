/** The server of the page: who is answered, what is served, actions, streams of models and their bounds. */

import { once } from 'node:events';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { WebModel } from '../model/web-model.ts';
import {
  CLIENTS_MAX,
  checkSource,
  checkToken,
  EventStream,
  readPageFiles,
  SECURITY_HEADERS,
  TOKEN_HEADER,
  WebServer,
} from './web-server.ts';

const TOKEN = 'a-token-of-24-characters';
const MODEL = { processCount: 7 } as WebModel;
const PAGE = { type: 'text/html; charset=utf-8', bytes: Buffer.from('<p>page</p>') };
const SCRIPT = { type: 'text/javascript; charset=utf-8', bytes: Buffer.from('1') };

let server: WebServer;
let injected: unknown[];
beforeEach(async () => {
  injected = [];
  server = await WebServer.listen(
    {
      files: new Map([
        ['/', PAGE],
        ['/assets/page.js', SCRIPT],
      ]),
      token: TOKEN,
      clock: new ManualClock(0),
      actions: {
        injectFault: (fault) => {
          if (JSON.stringify(fault) === '{}') throw invalidParam('card', 'must be one of 0, 1', undefined);
          injected.push(fault);
          return 'card 0: is reset';
        },
        startExchange: () => 'the exchange has started',
      },
    },
    0,
  );
});
afterEach(() => server.close());

interface Asked {
  readonly status: number | undefined;
  readonly text: string;
  readonly headers: IncomingMessage['headers'];
}

/** A request with any method, headers and body. */
async function ask(
  path: string,
  {
    method = 'GET',
    headers = {},
    body = '',
  }: { readonly method?: string; readonly headers?: object; readonly body?: string } = {},
): Promise<Asked> {
  const sent = request({ host: '127.0.0.1', port: server.port, path, method, headers: { ...headers } });
  sent.end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of response) text += String(part);
  return { status: response.statusCode, text, headers: response.headers };
}

const withToken = (path: string): string => `${path}?token=${TOKEN}`;
const post = (path: string, body: string, headers: object = { [TOKEN_HEADER]: TOKEN }): Promise<Asked> =>
  ask(path, { method: 'POST', headers, body });

describe('the server of the page', () => {
  it('listens on loopback, and names its address with the token', () => {
    expect(server.url).toBe(`http://127.0.0.1:${server.port}/?token=${TOKEN}`);
  });

  it('serves the page with the token only, and scripts without it', async () => {
    expect(await ask('/')).toMatchObject({
      status: 401,
      text: expect.stringContaining('the token is missing or wrong'),
    });
    expect(await ask('/?token=')).toMatchObject({ status: 401 });
    expect(await ask(`/?token=${TOKEN}x`)).toMatchObject({ status: 401 });
    expect(await ask(`/?token=${TOKEN}&token=x`)).toMatchObject({ status: 200 });
    expect(await ask(withToken('/'))).toMatchObject({ status: 200, text: '<p>page</p>' });
    expect(await ask('/assets/page.js')).toMatchObject({ status: 200, text: '1' });
    expect(await ask('/events')).toMatchObject({ status: 401 });
    expect(await ask(withToken('/other'))).toMatchObject({ status: 404 });
    expect(await ask('//[')).toMatchObject({ status: 400 });
    expect(await ask(withToken('/assets/../../package.json'))).toMatchObject({ status: 404 });
  });

  it('sends a strict policy with every answer, refusals too', async () => {
    for (const path of [withToken('/'), '/', '/assets/page.js']) {
      const { headers } = await ask(path);
      expect(headers).toMatchObject(SECURITY_HEADERS);
    }
    const policy = SECURITY_HEADERS['content-security-policy']!;
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toMatch(/unsafe|\*|http/);
  });

  it('refuses other names of this machine (DNS rebinding) and other pages', async () => {
    for (const host of ['evil.example', `evil.example:${server.port}`, '127.0.0.1', `127.0.0.1:${server.port + 1}`]) {
      expect(await ask(withToken('/'), { headers: { host } })).toMatchObject({ status: 403 });
    }
    const host = `localhost:${server.port}`;
    expect(await ask(withToken('/'), { headers: { host } })).toMatchObject({ status: 200 });
    for (const origin of ['http://evil.example', 'null', `https://127.0.0.1:${server.port}`]) {
      expect(await post('/fault', '{"card":0}', { [TOKEN_HEADER]: TOKEN, origin })).toMatchObject({ status: 403 });
    }
    expect(injected).toEqual([]);
  });

  it('refuses other methods', async () => {
    for (const method of ['PUT', 'DELETE', 'OPTIONS', 'POST']) {
      expect(await ask(withToken('/'), { method })).toMatchObject({ status: 405, headers: { allow: 'GET' } });
    }
    expect(await ask('/fault', { headers: { [TOKEN_HEADER]: TOKEN } })).toMatchObject({
      status: 405,
      headers: { allow: 'POST' },
    });
  });

  it('acts only for the token in the header', async () => {
    expect(await post('/fault', '{"card":0}', {})).toMatchObject({ status: 401 });
    expect(await post(withToken('/fault'), '{"card":0}', {})).toMatchObject({ status: 401 });
    expect(await post('/exchange', '', { [TOKEN_HEADER]: 'wrong' })).toMatchObject({ status: 401 });
    expect(injected).toEqual([]);
    expect(await post('/fault', '{"card":0,"kind":"hard-reset"}')).toMatchObject({
      status: 200,
      text: 'card 0: is reset',
    });
    expect(injected).toEqual([{ card: 0, kind: 'hard-reset' }]);
    expect(await post('/exchange', '')).toMatchObject({ status: 200, text: 'the exchange has started' });
  });

  it('says what is wrong with a request, and bounds its length', async () => {
    expect(await post('/fault', '{')).toMatchObject({ status: 400, text: expect.stringContaining('JSON') });
    expect(await post('/fault', '{}')).toMatchObject({
      status: 400,
      text: expect.stringContaining('must be one of 0, 1'),
    });
    expect(await post('/fault', 'x'.repeat(5000))).toMatchObject({ status: 413 });
    expect(injected).toEqual([]);
  });

  it('streams models to every page, the last one at once', async () => {
    const streams = [await open(), await open()];
    server.show(MODEL);
    for (const stream of streams) expect(await first(stream)).toBe('data: {"processCount":7}\n\n');
    const late = await open();
    expect(await first(late)).toBe('data: {"processCount":7}\n\n');
    expect(server.viewers).toBe(3);
    for (const stream of [...streams, late]) stream.destroy();
    await expect.poll(() => server.viewers).toBe(0);
  });

  it('has a bound on pages', async () => {
    const streams = await Promise.all(Array.from({ length: CLIENTS_MAX }, open));
    expect(await ask(withToken('/events'))).toMatchObject({
      status: 503,
      text: 'too many pages are open: close one\n',
    });
    for (const stream of streams) stream.destroy();
  });

  async function open(): Promise<IncomingMessage> {
    const sent = request({ host: '127.0.0.1', port: server.port, path: withToken('/events') });
    sent.end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.on('error', () => {});
    expect(response.headers['content-type']).toBe('text/event-stream');
    return response;
  }
});

async function first(stream: IncomingMessage): Promise<string> {
  const [bytes] = (await once(stream, 'data')) as [Buffer];
  return bytes.toString();
}

describe('a page that does not read', () => {
  /** A response whose peer does not read. */
  function stalled() {
    const sent: string[] = [];
    let isEnded = false;
    const response = {
      writableLength: 0,
      write: (text: string) => sent.push(text),
      destroy: () => {
        isEnded = true;
      },
      on: () => {},
    };
    return { response, sent, isEnded: () => isEnded };
  }

  it('misses models, gets the newest when it reads again, and is ended after a while', () => {
    const clock = new ManualClock(0);
    const events = new EventStream(clock);
    const { response, sent, isEnded } = stalled();
    events.add(response as unknown as ServerResponse);
    events.send({ n: 1 });
    response.writableLength = 2 ** 21;
    for (let n = 2; n < 100; n++) events.send({ n });
    response.writableLength = 0;
    events.send({ n: 100 });
    expect(sent).toEqual(['data: {"n":1}\n\n', 'data: {"n":100}\n\n']);
    response.writableLength = 2 ** 21;
    events.send({ n: 101 });
    clock.advance(31e9);
    expect([events.size, isEnded()]).toEqual([1, false]);
    events.send({ n: 102 });
    expect([events.size, isEnded()]).toEqual([0, true]);
  });
});

describe('the guard', () => {
  it('compares tokens of any length', () => {
    expect(checkToken(TOKEN, TOKEN)).toBeUndefined();
    for (const given of [undefined, null, '', 'x', TOKEN.toUpperCase(), `${TOKEN}${TOKEN}`]) {
      expect(checkToken(given, TOKEN)).toMatchObject({ status: 401 });
    }
  });

  it('accepts the two names of loopback with the port', () => {
    const of = (host: string | undefined, origin?: string): unknown =>
      checkSource({ ...(host !== undefined && { host }), ...(origin !== undefined && { origin }) }, 80);
    expect([of('127.0.0.1:80'), of('localhost:80'), of('localhost:80', 'http://localhost:80')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    for (const host of [undefined, 'localhost', '127.0.0.1:8', '[::1]:80', 'localhost.evil:80']) {
      expect(of(host)).toMatchObject({ status: 403 });
    }
    expect(of('localhost:80', 'http://127.0.0.1:80')).toMatchObject({ status: 403 });
  });
});

describe('the files of the page', () => {
  it('refuse a folder without a page', () => {
    for (const folder of ['/nonexistent', import.meta.dirname]) {
      expect(() => readPageFiles(folder)).toThrow(expect.objectContaining({ code: 'ERR_WEB_PAGE' }));
    }
  });
});
