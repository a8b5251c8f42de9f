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

{{/* What clients are told: the Service, or the pod of a member, unless another name is given. */}}
{{- define "aerobee.advertised" -}}
{{- $service := printf "%s.%s.svc" (include "aerobee.fullname" .) .Release.Namespace -}}
{{- default (gt (int .Values.members) 1 | ternary (include "aerobee.pod" .) $service) .Values.advertisedHost -}}
{{- end }}

{{/* The name of the pod itself in the cluster; Kubernetes puts POD_NAME in its place. */}}
{{- define "aerobee.pod" -}}
{{- printf "$(POD_NAME).%s-headless.%s.svc" (include "aerobee.fullname" .) .Release.Namespace -}}
{{- end }}

{{/* The name servers in all pods of a group. */}}
{{- define "aerobee.nameServers" -}}
{{- $name := include "aerobee.fullname" . -}}
{{- $servers := list -}}
{{- range untilStep 1 (int (add1 .Values.members)) 1 -}}
{{- $servers = append $servers (printf "%s-%d.%s-headless.%s.svc:9876" $name . $name $.Release.Namespace) -}}
{{- end -}}
{{- join ";" $servers -}}
{{- end }}

{{/* The members by their numbers, which are those of the pods. */}}
{{- define "aerobee.members" -}}
{{- $numbers := list -}}
{{- range untilStep 1 (int (add1 .Values.members)) 1 }}{{ $numbers = append $numbers . }}{{ end -}}
{{- join ";" $numbers -}}
{{- end }}

{{/* Where slaves find the log. */}}
{{- define "aerobee.haPort" -}}
{{- int (default 10912 .Values.config.haListenPort) -}}
{{- end }}
