{{- define "aerobee.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "aerobee.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "aerobee.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "aerobee.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "aerobee.selector" -}}
app.kubernetes.io/name: {{ include "aerobee.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "aerobee.labels" -}}
{{ include "aerobee.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{/* What clients are told: the Service, unless another name is given. */}}
{{- define "aerobee.advertised" -}}
{{- default (printf "%s.%s.svc" (include "aerobee.fullname" .) .Release.Namespace) .Values.advertisedHost -}}
{{- end }}

{{/* Where slaves find the log. */}}
{{- define "aerobee.haPort" -}}
{{- int (default 10912 .Values.config.haListenPort) -}}
{{- end }}
