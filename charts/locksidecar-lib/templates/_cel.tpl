{{/*
Writes a value as a CEL expression. A string that begins with $cel: is one
already; an element of a list with the key $when is in it where that
expression is true. Everything in a map or list is dyn, as CEL on Kubernetes
takes no map of mixed types. Each map in a list is on a line of its own, for
people who read the policy.
*/}}
{{- define "locksidecar._cel" -}}
{{- if kindIs "map" . -}}
{
{{- $first := true -}}
{{- range $key, $value := . -}}
{{- if ne $key "$when" -}}
{{- if not $first }}, {{ end -}}
{{- $first = false -}}
{{ toJson $key }}: dyn({{ include "locksidecar._cel" $value }})
{{- end -}}
{{- end -}}
}
{{- else if kindIs "slice" . -}}
{{- $open := false -}}
{{- range $i, $value := . -}}
{{- $when := "" -}}
{{- $space := " " -}}
{{- if kindIs "map" $value -}}{{- $when = get $value "$when" -}}{{- $space = "\n  " -}}{{- end -}}
{{- if $when -}}
{{- if $open }}]{{ $open = false }}{{ end -}}
{{- if gt $i 0 }} +{{ end -}}
{{ $space }}({{ $when }} ? [dyn({{ include "locksidecar._cel" $value }})] : [])
{{- else -}}
{{- if $open }},{{ $space }}{{ else }}{{ if gt $i 0 }} +{{ $space }}{{ end }}[{{ $open = true }}{{ end -}}
dyn({{ include "locksidecar._cel" $value }})
{{- end -}}
{{- end -}}
{{- if $open }}]{{ end -}}
{{- if not . }}[]{{ end -}}
{{- else if and (kindIs "string" .) (hasPrefix "$cel:" .) -}}
{{ trimPrefix "$cel:" . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}
