// Starts the stand-in for Cosmos DB and obeys the tests. usage: node cosmos_server.mjs PACKAGE_FOLDER HOST PORT [tls]
//   GET /__test/clock?ahead_ms=N   its clock runs so far ahead of the machine's
//   GET /__test/fail?status=S&times=N&retry_ms=M&method=VERB   the next N requests to documents are answered so
//   GET /__test/count              how many requests came so far, those to /__test aside
//   GET /__test/authorization      what the last request to a document said in its header of that name
import { createRequire } from 'node:module';

const [folder, host, port, tls] = process.argv.slice(2);
const { createHttpServer, createHttpsServer } = createRequire(import.meta.url)(folder);
const machine = Date.now;
let aheadMs = 0;
let fail = { times: 0 };
let count = 0;
let authorization = '';
Date.now = () => machine() + aheadMs;

const server = (tls ? createHttpsServer : createHttpServer)({ keepAlive: true, keepAliveTimeout: 120000 });
const [handle] = server.listeners('request');
server.removeAllListeners('request');
server.on('request', (request, response) => {
    const url = new URL(request.url, 'http://localhost');
    if (url.pathname.startsWith('/__test/')) return obey(url, response);
    count += 1;
    const isDocument = url.pathname.includes('/docs');
    if (isDocument) authorization = decodeURIComponent(request.headers.authorization ?? '');
    if (isDocument && fail.times > 0 && (!fail.method || fail.method === request.method)) return refuse(response);
    // Asked for a document that is absent, it fails unless it believes that the request may span partitions.
    if (isDocument && request.method === 'GET') request.headers['x-ms-documentdb-query-enablecrosspartition'] = 'True';
    handle.call(server, request, response);
});
server.listen(Number(port), host);

function obey(url, response) {
    const asked = Object.fromEntries(url.searchParams);
    if (url.pathname === '/__test/clock') aheadMs = Number(asked.ahead_ms);
    if (url.pathname === '/__test/fail') fail = { ...asked, times: Number(asked.times) };
    response.end(url.pathname === '/__test/authorization' ? authorization : String(count));
}

function refuse(response) {
    fail.times -= 1;
    response.statusCode = Number(fail.status);
    response.setHeader('content-type', 'application/json');
    response.setHeader('x-ms-request-charge', '0');
    if (fail.retry_ms) response.setHeader('x-ms-retry-after-ms', fail.retry_ms);
    if (fail.substatus) response.setHeader('x-ms-substatus', fail.substatus);
    response.end(JSON.stringify({ code: 'Told', message: 'the test asked for this answer' }));
}
