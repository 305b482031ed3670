# A worker without streaming: its lock is not renewed by the sidecar but by its
# own heartbeat. If the worker hangs or dies, the lock ends with its TTL.
#
#   ruby heartbeat.rb KEY [STEPS]
require 'erb'
require 'json'
require 'net/http'

BASE = URI(ENV.fetch('LOCKSIDECAR_URL', 'http://localhost:5625'))
TTL = 6 # seconds; a step of work must take less than a third of it

# Sends a request and returns its status and answer.
def call(method, path, parameters)
  request = Net::HTTP.const_get(method).new(path)
  request.set_form_data(parameters)
  answer = Net::HTTP.start(BASE.host, BASE.port, read_timeout: 60) { |http| http.request(request) }
  [answer.code.to_i, answer.body.to_s.empty? ? nil : JSON.parse(answer.body)]
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

$stdout.sync = true
path = "/locks/#{ERB::Util.url_encode(ARGV[0])}"
steps = Integer(ARGV[1] || 1000)

status, grant = call(:Post, path, renew: false, ttl: "#{TTL}s", wait: '30s', owner: "ruby-#{Process.pid}")
abort_with = ->(code, text) { puts text; exit code }
abort_with.(75, "not acquired: #{grant['code']}") unless [200, 201].include?(status)
handle = { fencing_token: grant['fencing_token'] }
puts "held #{grant['fencing_token']}"

beat = now
steps.times do
  sleep 0.05 # a piece of work
  next if now - beat < TTL / 3.0

  beat = now
  status, = call(:Patch, path, handle.merge(ttl: "#{TTL}s"))
  case status
  when 200
  when 503 then beat -= TTL / 4.0 # no answer: the lease goes on as it was, so ask once more soon
  else abort_with.(76, 'lost')
  end
end
status, = call(:Delete, path, handle)
abort_with.(76, 'lost') unless status == 204
puts 'done'
