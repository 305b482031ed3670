<?php
// A worker without streaming: its lock is not renewed by the sidecar but by
// its own heartbeat. If the worker hangs or dies, the lock ends with its TTL.
//
//   php heartbeat.php KEY [STEPS]

$url = getenv('LOCKSIDECAR_URL') ?: 'http://localhost:5625';
$key = $argv[1];
$steps = (int) ($argv[2] ?? 1000);
$ttl = 6; // seconds; a step of work must take less than a third of it

// Sends a request and returns its status and answer.
function call(string $method, string $path, array $parameters): array
{
    global $url;
    $answer = file_get_contents($url . $path, false, stream_context_create(['http' => [
        'method' => $method,
        'header' => 'Content-Type: application/x-www-form-urlencoded',
        'content' => http_build_query($parameters),
        'ignore_errors' => true, // a refusal has a body to read
        'timeout' => 60,
    ]]));
    if ($answer === false) {
        return [0, null];
    }
    preg_match('#^HTTP/\S+ (\d+)#', $http_response_header[0], $found);
    return [(int) $found[1], json_decode($answer, true)];
}

$path = '/locks/' . rawurlencode($key);
[$status, $grant] = call('POST', $path, ['renew' => 'false', 'ttl' => "{$ttl}s", 'wait' => '30s', 'owner' => 'php-' . getmypid()]);
if ($status !== 201 && $status !== 200) {
    fwrite(STDERR, "not acquired: {$grant['code']}\n");
    exit(75);
}
$handle = ['fencing_token' => $grant['fencing_token']];
echo "held {$grant['fencing_token']}\n";

$beat = hrtime(true);
for ($step = 0; $step < $steps; $step++) {
    usleep(50_000); // a piece of work
    if (hrtime(true) - $beat < $ttl * 1e9 / 3) {
        continue;
    }
    $beat = hrtime(true);
    [$status] = call('PATCH', $path, $handle + ['ttl' => "{$ttl}s"]);
    // A 503 is no answer: the lease goes on as it was, so ask once more soon.
    if ($status === 503) {
        $beat -= (int) ($ttl * 1e9 / 4);
    } elseif ($status !== 200) {
        echo "lost\n";
        exit(76);
    }
}
[$status] = call('DELETE', $path, $handle);
echo $status === 204 ? "done\n" : "lost\n";
exit($status === 204 ? 0 : 76);
