{{/*
The container, and what belongs to it. A chart that depends on this one, by the
alias locksidecar or by its own name, writes

  spec:
    initContainers:
      {{- include "locksidecar.container" . | nindent 6 }}
    containers:
      - name: app
        env:
          {{- include "locksidecar.appEnv" . | nindent 10 }}
    volumes:
      {{- include "locksidecar.volumes" . | nindent 6 }}

and, with form: classic, includes the container under containers instead. An
application's image without curl gets the program itself, with bin: true, by
locksidecar.binContainer under initContainers and locksidecar.binMount under
its volumeMounts.
*/}}

{{- define "locksidecar.container" -}}
{{- $s := include "locksidecar.settings" . | fromYaml -}}
- {{ include "locksidecar._container" (dict "s" $s "pod" dict) | nindent 2 | trim }}
{{- end }}

{{/* An init container that copies the program to where locksidecar.binMount mounts it; with bin: true. */}}
{{- define "locksidecar.binContainer" -}}
{{- $s := include "locksidecar.settings" . | fromYaml -}}
- {{ include "locksidecar._binContainer" (dict "s" $s "pod" dict) | nindent 2 | trim }}
{{- end }}

{{- define "locksidecar.volumes" -}}
{{- $s := include "locksidecar.settings" . | fromYaml -}}
{{ include "locksidecar._volumes" (dict "s" $s "pod" dict "bin" $s.bin) }}
{{- end }}

{{- define "locksidecar.appEnv" -}}
{{- $s := include "locksidecar.settings" . | fromYaml -}}
{{ list (include "locksidecar._appEnv" (dict "s" $s) | fromYaml) | toYaml }}
{{- end }}

{{- define "locksidecar.binMount" -}}
{{ list (include "locksidecar._binMount" . | fromYaml) | toYaml }}
{{- end }}

{{/*
The settings: the dependency's values in the chart that includes this.
*/}}
{{- define "locksidecar.settings" -}}
{{- $s := .Values.locksidecar | default (index .Values "locksidecar-lib") -}}
{{- if not $s -}}
{{- fail "locksidecar-lib: give the dependency the alias locksidecar, so that its values are found" -}}
{{- end -}}
{{- include "locksidecar._check" $s -}}
{{- $lib := get .Subcharts "locksidecar" | default (get .Subcharts "locksidecar-lib") -}}
{{- $image := merge (dict "tag" ($s.image.tag | default $lib.Chart.AppVersion)) $s.image -}}
{{- toYaml (merge (dict "image" $image) $s) -}}
{{- end }}

{{/*
Says what is wrong with settings that no schema can tell of.
*/}}
{{- define "locksidecar._check" -}}
{{- if not .redis.addresses -}}
{{- fail "redis.addresses is required: where Redis is, as seen from the application's pods, for instance --set 'redis.addresses={redis.redis.svc:6379}'" -}}
{{- end -}}
{{- if and (eq .redis.mode "single") (gt (len .redis.addresses) 1) -}}
{{- fail "redis.addresses has more than one address, which redis.mode single does not take; sentinel and cluster do" -}}
{{- end -}}
{{- if and (eq .redis.mode "redlock") (or (lt (len .redis.addresses) 3) (gt (len .redis.addresses) 15) (eq (mod (len .redis.addresses) 2) 0)) -}}
{{- fail "redis.addresses with redis.mode redlock is an odd number of independent servers, from 3 to 15" -}}
{{- end -}}
{{- if and (eq .redis.mode "redlock") .redis.minReplicas -}}
{{- fail "redis.minReplicas is not for redis.mode redlock, where a majority of servers holds each lock" -}}
{{- end -}}
{{- if and .termination.grace (ne .termination.mode "release") (not (and (eq (toString .form) "classic") (not .termination.mode))) -}}
{{- if gt (include "locksidecar._ms" .termination.grace | int) 1500 -}}
{{- fail "termination.grace is at most 1500ms with termination.mode drop and guarded: Kubernetes leaves 2s once the pod's grace period has run out" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .redis.mode "sentinel") (not .redis.sentinel.master) -}}
{{- fail "redis.sentinel.master is required with redis.mode sentinel: the name under which the Sentinels watch the master" -}}
{{- end -}}
{{- if and (eq .redis.mode "cluster") .redis.db -}}
{{- fail "redis.db is not for redis.mode cluster: a cluster has database 0 alone" -}}
{{- end -}}
{{- if and .redis.usernameKey (not .redis.passwordKey) -}}
{{- fail "redis.usernameKey needs redis.passwordKey" -}}
{{- end -}}
{{- if and .redis.sentinel.usernameKey (not .redis.sentinel.passwordKey) -}}
{{- fail "redis.sentinel.usernameKey needs redis.sentinel.passwordKey" -}}
{{- end -}}
{{- $ttl := include "locksidecar._ms" .locks.ttl | int -}}
{{- $most := include "locksidecar._maxTTL" . -}}
{{- if or (lt $ttl 1000) (gt $ttl (include "locksidecar._ms" $most | int)) -}}
{{- fail (printf "locks.ttl is from 1s to %s, which is what LOCKSIDECAR_MAX_TTL and the restart guard allow" $most) -}}
{{- end -}}
{{- $hold := include "locksidecar._ms" .locks.maxHold | int -}}
{{- if and (gt $hold 0) (lt $hold $ttl) -}}
{{- fail "locks.maxHold is at least locks.ttl" -}}
{{- end -}}
{{- if eq (int .api.port) (int .admin.port) -}}
{{- fail "api.port and admin.port are two ports" -}}
{{- end -}}
{{- if ne (not .redis.tls.certKey) (not .redis.tls.keyKey) -}}
{{- fail "redis.tls.certKey and redis.tls.keyKey need each other" -}}
{{- end -}}
{{- end }}

{{/* The longest lease that the program takes: MAX_TTL, or the restart guard if that is shorter. */}}
{{- define "locksidecar._maxTTL" -}}
{{- $most := .extraEnv.LOCKSIDECAR_MAX_TTL | default "24h" -}}
{{- $guard := .extraEnv.LOCKSIDECAR_REDIS_RESTART_GUARD | default (ternary "60s" "0s" (eq .redis.mode "redlock")) -}}
{{- $guardMS := include "locksidecar._ms" $guard | int -}}
{{- if and (gt $guardMS 0) (lt $guardMS (include "locksidecar._ms" $most | int)) -}}
{{- $guard -}}
{{- else -}}
{{- $most -}}
{{- end -}}
{{- end }}

{{/* A duration in milliseconds, of one unit or several. */}}
{{- define "locksidecar._ms" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) -}}
{{- end -}}
{{- ceil $sum | int -}}
{{- end }}

{{/*
The rest takes a dict: s is the settings, pod is empty or, for the admission
policy, holds CEL expressions for what a pod may choose by its annotations.
*/}}
{{- define "locksidecar._container" -}}
{{- $s := .s -}}
{{- $pod := .pod -}}
{{- $native := ne (toString $s.form) "classic" -}}
name: locksidecar
image: {{ include "locksidecar._image" $s | quote }}
imagePullPolicy: {{ $s.image.pullPolicy }}
{{- if $native }}
restartPolicy: Always
{{- end }}
env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}
  - name: POD_NAME
    valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}
  {{- include "locksidecar._env" (dict "name" "REDIS_MODE" "value" $s.redis.mode) }}
  {{- include "locksidecar._env" (dict "name" "REDIS_ADDRS" "value" (join "," $s.redis.addresses)) }}
  {{- if $s.redis.db }}
  {{- include "locksidecar._env" (dict "name" "REDIS_DB" "value" $s.redis.db) }}
  {{- end }}
  {{- if $s.redis.minReplicas }}
  {{- include "locksidecar._env" (dict "name" "REDIS_MIN_REPLICAS" "value" $s.redis.minReplicas) }}
  {{- end }}
  {{- if eq $s.redis.mode "sentinel" }}
  {{- include "locksidecar._env" (dict "name" "SENTINEL_MASTER" "value" $s.redis.sentinel.master) }}
  {{- end }}
  {{- $secret := dict "used" $s.redis.existingSecret "cel" $pod.redisSecret }}
  {{- include "locksidecar._file" (dict "name" "REDIS_USERNAME_FILE" "key" $s.redis.usernameKey "secret" $secret) }}
  {{- include "locksidecar._file" (dict "name" "REDIS_PASSWORD_FILE" "key" $s.redis.passwordKey "secret" $secret) }}
  {{- if eq $s.redis.mode "sentinel" }}
  {{- include "locksidecar._file" (dict "name" "SENTINEL_USERNAME_FILE" "key" $s.redis.sentinel.usernameKey "secret" $secret) }}
  {{- include "locksidecar._file" (dict "name" "SENTINEL_PASSWORD_FILE" "key" $s.redis.sentinel.passwordKey "secret" $secret) }}
  {{- end }}
  {{- $tls := dict "used" $s.redis.tls.existingSecret "cel" $pod.redisTLSSecret "dir" "tls" }}
  {{- if $s.redis.tls.enabled }}
  {{- include "locksidecar._env" (dict "name" "REDIS_TLS" "value" "true") }}
  {{- else }}
  {{- include "locksidecar._env" (dict "name" "REDIS_TLS" "value" (ternary "true" "" (ne $tls.used "")) "when" $tls.cel) }}
  {{- end }}
  {{- include "locksidecar._file" (dict "name" "REDIS_TLS_CA_FILE" "key" $s.redis.tls.caKey "secret" $tls) }}
  {{- include "locksidecar._file" (dict "name" "REDIS_TLS_CERT_FILE" "key" $s.redis.tls.certKey "secret" $tls) }}
  {{- include "locksidecar._file" (dict "name" "REDIS_TLS_KEY_FILE" "key" $s.redis.tls.keyKey "secret" $tls) }}
  {{- if $s.redis.tls.serverName }}
  {{- if $s.redis.tls.enabled }}
  {{- include "locksidecar._env" (dict "name" "REDIS_TLS_SERVER_NAME" "value" $s.redis.tls.serverName) }}
  {{- else }}
  {{- include "locksidecar._env" (dict "name" "REDIS_TLS_SERVER_NAME" "value" (ternary $s.redis.tls.serverName "" (ne $tls.used "")) "when" $tls.cel) }}
  {{- end }}
  {{- end }}
  {{- /* The one setting that may be empty. */}}
  - name: LOCKSIDECAR_KEY_PREFIX
    value: {{ $pod.keyPrefix | default $s.locks.keyPrefix | quote }}
  {{- include "locksidecar._env" (dict "name" "DEFAULT_TTL" "value" $s.locks.ttl "cel" $pod.ttl) }}
  {{- include "locksidecar._env" (dict "name" "DEFAULT_MAX_HOLD" "value" $s.locks.maxHold "cel" $pod.maxHold) }}
  {{- include "locksidecar._env" (dict "name" "METRIC_KEYS" "value" (join "," $s.locks.metricKeys)) }}
  {{- if $s.locks.state.enabled }}
  {{- include "locksidecar._env" (dict "name" "STATE_DIR" "value" "/var/lib/locksidecar") }}
  {{- end }}
  {{- include "locksidecar._env" (dict "name" "SHUTDOWN_MODE" "value" ($s.termination.mode | default (ternary "guarded" "release" $native)) "cel" $pod.shutdownMode) }}
  {{- include "locksidecar._env" (dict "name" "SHUTDOWN_GRACE" "value" ($pod.shutdownGrace | default $s.termination.grace | default (ternary "1500ms" "25s" $native))) }}
  {{- if ne (int $s.api.port) 5625 }}
  {{- include "locksidecar._env" (dict "name" "LISTEN" "value" (printf "127.0.0.1:%d,[::1]:%d" (int $s.api.port) (int $s.api.port))) }}
  {{- end }}
  {{- include "locksidecar._env" (dict "name" "ADMIN_LISTEN" "value" (printf ":%d" (int $s.admin.port))) }}
  {{- include "locksidecar._env" (dict "name" "LOG_LEVEL" "value" $s.admin.logLevel "cel" $pod.logLevel) }}
  {{- include "locksidecar._env" (dict "name" "LOG_FORMAT" "value" $s.admin.logFormat) }}
  {{- range $name, $value := $s.extraEnv }}
  - name: {{ $name | quote }}
    value: {{ $value | quote }}
  {{- end }}
ports:
  - name: lock-admin
    containerPort: {{ int $s.admin.port }}
    protocol: TCP
{{- with $s.probes.startup }}
{{- if .enabled }}
startupProbe:
  httpGet: {path: {{ ternary "/readyz" "/startupz" .waitForRedis }}, port: lock-admin}
  {{- include "locksidecar._probe" . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $s.probes.readiness }}
{{- if .enabled }}
readinessProbe:
  httpGet: {path: /readyz, port: lock-admin}
  {{- include "locksidecar._probe" . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $s.probes.liveness }}
{{- if .enabled }}
livenessProbe:
  httpGet: {path: /livez, port: lock-admin}
  {{- include "locksidecar._probe" . | nindent 2 }}
{{- end }}
{{- end }}
{{- if $s.termination.drain }}
lifecycle:
  preStop:
    exec:
      command: [/locksidecar, drain, --url, "http://127.0.0.1:{{ int $s.api.port }}"]
{{- end }}
{{- include "locksidecar._resources" . }}
{{- include "locksidecar._security" . }}
volumeMounts: {{- if not (or $s.locks.state.enabled $secret.used $secret.cel $tls.used $tls.cel) }} []{{ end }}
  {{- if $s.locks.state.enabled }}
  - name: locksidecar-state
    mountPath: /var/lib/locksidecar
  {{- end }}
  {{- include "locksidecar._mount" (dict "name" "locksidecar-redis" "path" "/etc/locksidecar/redis" "secret" $secret) }}
  {{- include "locksidecar._mount" (dict "name" "locksidecar-redis-tls" "path" "/etc/locksidecar/tls" "secret" $tls) }}
{{- end }}

{{- define "locksidecar._volumes" -}}
{{- $s := .s -}}
{{- if $s.locks.state.enabled }}
- name: locksidecar-state
  emptyDir: {medium: Memory, sizeLimit: {{ $s.locks.state.sizeLimit | quote }}}
{{- end }}
{{- include "locksidecar._secretVolume" (dict "name" "locksidecar-redis" "used" $s.redis.existingSecret "cel" .pod.redisSecret) }}
{{- include "locksidecar._secretVolume" (dict "name" "locksidecar-redis-tls" "used" $s.redis.tls.existingSecret "cel" .pod.redisTLSSecret) }}
{{- if .bin }}
- name: locksidecar-bin
  emptyDir: {}
  {{- if .pod.bin }}
  $when: {{ .pod.bin | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Copies the program into a volume. */}}
{{- define "locksidecar._binContainer" -}}
name: locksidecar-bin
image: {{ include "locksidecar._image" .s | quote }}
imagePullPolicy: {{ .s.image.pullPolicy }}
args: [install, /opt/locksidecar]
{{- include "locksidecar._resources" . }}
{{- include "locksidecar._security" . }}
volumeMounts:
  - name: locksidecar-bin
    mountPath: /opt/locksidecar
{{- end }}

{{- define "locksidecar._binMount" -}}
name: locksidecar-bin
mountPath: /opt/locksidecar
readOnly: true
{{- end }}

{{- define "locksidecar._appEnv" -}}
name: LOCKSIDECAR_URL
value: "http://127.0.0.1:{{ int .s.api.port }}"
{{- end }}

{{- define "locksidecar._image" -}}
{{ .image.repository }}:{{ required "image.tag" .image.tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "locksidecar._security" }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  privileged: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{- define "locksidecar._resources" }}
{{- if .pod.resources }}
resources: {{ .pod.resources | quote }}
{{- else }}
resources:
  {{- get .s.resources .s.resources.profile | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "locksidecar._probe" -}}
periodSeconds: {{ int .periodSeconds }}
timeoutSeconds: {{ int .timeoutSeconds }}
failureThreshold: {{ int .failureThreshold }}
{{- end }}

{{/*
One setting: of value, or of the CEL expression cel; none if that is empty.
With the CEL expression when, value is set where that is not empty.
*/}}
{{- define "locksidecar._env" -}}
{{- if .cel }}
  - name: LOCKSIDECAR_{{ .name }}
    value: {{ printf "$cel:%s" .cel | quote }}
    $when: {{ printf "%s != \"\"" .cel | quote }}
{{- else if .when }}
  - name: LOCKSIDECAR_{{ .name }}
    value: {{ .value | default "true" | quote }}
    $when: {{ printf "%s != \"\"" .when | quote }}
{{- else if ne (toString .value) "" }}
  - name: LOCKSIDECAR_{{ .name }}
    value: {{ .value | toString | quote }}
{{- end }}
{{- end }}

{{/* A setting that names a file of a mounted Secret. */}}
{{- define "locksidecar._file" -}}
{{- if and .key (or .secret.used .secret.cel) }}
{{- include "locksidecar._env" (dict "name" .name "value" (printf "/etc/locksidecar/%s/%s" (.secret.dir | default "redis") .key) "when" .secret.cel) }}
{{- end }}
{{- end }}

{{- define "locksidecar._mount" -}}
{{- if or .secret.used .secret.cel }}
  - name: {{ .name }}
    mountPath: {{ .path }}
    readOnly: true
    {{- if .secret.cel }}
    $when: {{ printf "%s != \"\"" .secret.cel | quote }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "locksidecar._secretVolume" -}}
{{- if .cel }}
- name: {{ .name }}
  secret: {secretName: {{ printf "$cel:%s" .cel | quote }}, defaultMode: 0444}
  $when: {{ printf "%s != \"\"" .cel | quote }}
{{- else if .used }}
- name: {{ .name }}
  secret: {secretName: {{ .used | quote }}, defaultMode: 0444}
{{- end }}
{{- end }}
