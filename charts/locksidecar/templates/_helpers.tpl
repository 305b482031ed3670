{{- define "locksidecar.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "locksidecar.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" .Chart.Name
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- merge $labels .Values.commonLabels | toYaml -}}
{{- end }}

{{/* The settings of the container: the values, with the image's tag made out. */}}
{{- define "locksidecar.values" -}}
{{- include "locksidecar._check" .Values -}}
{{- $image := merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) .Values.image -}}
{{- toYaml (merge (dict "image" $image) (omit .Values "locksidecar-lib" "global")) -}}
{{- end }}
