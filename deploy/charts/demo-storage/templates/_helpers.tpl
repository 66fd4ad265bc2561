{{- define "demo.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: paddlewheel-demo
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Replaces the pods when the run id or their configuration changes. */}}
{{- define "demo.podAnnotations" -}}
paddlepaddle.org/run: {{ .root.Values.runId | quote }}
paddlepaddle.org/config: {{ .config | sha256sum }}
{{- end }}

{{- define "demo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "demo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
