{{/* Names are fixed because services find each other by name: one release per cluster. */}}

{{- define "paddlewheel.labels" -}}
{{ include "paddlewheel.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: paddlewheel
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "paddlewheel.selector" -}}
app.kubernetes.io/name: {{ .name }}
{{- end }}

{{/* Label of the pods that serve metrics at port `http`. */}}
{{- define "paddlewheel.metricsLabel" -}}
paddlepaddle.org/metrics: "true"
{{- end }}

{{- define "paddlewheel.image" -}}
{{ .root.Values.image.repository }}/{{ .name }}:{{ .root.Values.image.tag }}
{{- end }}

{{- define "paddlewheel.natsUrl" -}}
{{- if .Values.nats.enabled -}}
tls://nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{/* URLs of all servers' HTTP monitors, joined by commas: each server is asked. "" when unknown. */}}
{{- define "paddlewheel.natsMonitorUrl" -}}
{{- if .Values.nats.enabled -}}
{{- $urls := list -}}
{{- range $index := until (include "paddlewheel.natsReplicas" . | int) -}}
{{- $urls = append $urls (printf "http://nats-%d.nats-servers.%s.svc:8222" $index $.Release.Namespace) -}}
{{- end -}}
{{ join "," $urls }}
{{- else -}}
{{ .Values.nats.monitorUrl }}
{{- end -}}
{{- end }}

{{- define "paddlewheel.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "paddlewheel.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
Where a workload's pods run: the value of `workloads` for it, else the one for all. Arguments: root, name, and optionally
antiAffinity, its podAntiAffinity unless the values have one.
*/}}
{{- define "paddlewheel.placement" -}}
{{- $own := get .root.Values.workloads .name | default dict }}
{{- $placement := dict }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- $_ := set $placement $field (hasKey $own $field | ternary (get $own $field) (get $.root.Values $field)) }}
{{- end }}
{{- if and .antiAffinity (not (hasKey $placement.affinity "podAntiAffinity")) }}
{{- $_ := set $placement "affinity" (merge (dict "podAntiAffinity" .antiAffinity) $placement.affinity) }}
{{- end }}
{{- range $field, $value := $placement }}
{{- if $value }}
{{ dict $field $value | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations of a workload's pods: those of the values, and those of the argument `annotations`. */}}
{{- define "paddlewheel.podAnnotations" -}}
{{- $own := get .root.Values.workloads .name | default dict }}
{{- $annotations := hasKey $own "podAnnotations" | ternary (get $own "podAnnotations") .root.Values.podAnnotations }}
{{- merge (dict) (.annotations | default dict) $annotations | toYaml }}
{{- end }}

{{/* Annotations of the pods of a service: where its metrics are, and the text that restarts it. */}}
{{- define "paddlewheel.serviceAnnotations" -}}
{{- $annotations := dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" }}
{{- with .root.Values.rollout }}
{{- $_ := set $annotations "paddlepaddle.org/rollout" . }}
{{- end }}
{{- include "paddlewheel.podAnnotations" (dict "root" .root "name" .name "annotations" $annotations) }}
{{- end }}

{{/*
A controller's ServiceAccount and Deployment. Arguments: root, name, values, prefix, env (name -> text), and optionally
secrets and optionalSecrets (mount path -> Secret).
*/}}
{{- define "paddlewheel.controller" -}}
{{- $secrets := .secrets | default dict }}
{{- $tls := and (include "paddlewheel.busTls" .root) (not .ownTls) }}
{{- $optional := .optionalSecrets | default dict }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "paddlewheel.labels" . | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "paddlewheel.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels: {{- include "paddlewheel.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "paddlewheel.labels" . | nindent 8 }}
        {{- include "paddlewheel.metricsLabel" . | nindent 8 }}
      annotations: {{- include "paddlewheel.serviceAnnotations" . | nindent 8 }}
    spec:
      {{- include "paddlewheel.placement" . | indent 6 }}
      serviceAccountName: {{ .name }}
      enableServiceLinks: false
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "paddlewheel.podSecurity" . | nindent 8 }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .name }}
          image: {{ include "paddlewheel.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          securityContext: {{- include "paddlewheel.containerSecurity" . | nindent 12 }}
          ports:
            - {name: http, containerPort: 8080}
          env:
            - name: {{ .prefix }}_POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: {{ .prefix }}_POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            {{- range $name, $value := merge (dict) .values.extraEnv .env (include "paddlewheel.commonEnv" . | fromYaml) }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 1
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 2
            timeoutSeconds: 5
          resources: {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .root.Values.nats.credentialsSecret }}
            - {name: nats-credentials, mountPath: /etc/paddlewheel/nats, readOnly: true}
            {{- end }}
            {{- if $tls }}
            - {name: bus, mountPath: /etc/paddlewheel/bus, readOnly: true}
            {{- end }}
            {{- range $path, $secret := merge (dict) $secrets $optional }}
            - {name: {{ $secret }}, mountPath: {{ $path }}, readOnly: true}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {{ .tmp | default dict | toJson }}}
        {{- with .root.Values.nats.credentialsSecret }}
        - {name: nats-credentials, secret: {secretName: {{ . }}, defaultMode: 288}}
        {{- end }}
        {{- if $tls }}
        - {{- include "paddlewheel.busTokenVolume" . | nindent 10 }}
        {{- end }}
        {{- range $path, $secret := $secrets }}
        - {name: {{ $secret }}, secret: {secretName: {{ $secret }}, defaultMode: 288}}
        {{- end }}
        {{- range $path, $secret := $optional }}
        - {name: {{ $secret }}, secret: {secretName: {{ $secret }}, defaultMode: 288, optional: true}}
        {{- end }}
{{- end }}

{{/* Settings common to all controllers, as a map. */}}
{{- define "paddlewheel.commonEnv" -}}
{{ include "paddlewheel.busEnv" . }}
{{ .prefix }}_NAMESPACE: {{ .values.namespace | quote }}
{{- end }}

{{/* Settings of every client of the bus, as a map. Arguments: root, prefix, values. */}}
{{- define "paddlewheel.busEnv" -}}
{{ .prefix }}_NATS_URL: {{ include "paddlewheel.natsUrl" .root }}
{{ .prefix }}_HTTP_PORT: "8080"
{{ .prefix }}_LOG_LEVEL: {{ .root.Values.logLevel }}
{{- if .root.Values.nats.credentialsSecret }}
{{ .prefix }}_NATS_CREDS_FILE: /etc/paddlewheel/nats/nats.creds
{{- end }}
{{- if include "paddlewheel.busTls" .root }}
{{ .prefix }}_NATS_TLS_DIR: /etc/paddlewheel/bus
{{- end }}
{{- if and (include "paddlewheel.busTokens" .root) (ne .name "bus-auth") }}
{{ .prefix }}_NATS_TOKEN_FILE: /etc/paddlewheel/bus/token
{{- end }}
{{ .prefix }}_NATS_PROFILE: {{ .root.Values.profile }}
{{ .prefix }}_NATS_REPLICAS: {{ include "paddlewheel.streamReplicas" .root | quote }}
{{ .prefix }}_NATS_MONITOR_URL: {{ include "paddlewheel.natsMonitorUrl" .root | quote }}
{{- end }}

{{/*
The beginning of a controller's rules, up to `rules:`. A controller of one namespace has a Role there, one of all namespaces a
ClusterRole.
*/}}
{{- define "paddlewheel.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne .values.namespace "") }}
metadata:
  name: paddlewheel-{{ .name }}
  {{- with .values.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "paddlewheel.labels" . | nindent 4 }}
rules:
{{- end }}

{{/*
A controller's bindings, and its rights apart from those above. Arguments: root, name, values, and optionally clusterRules (for
kinds that are in no namespace: they are in the ClusterRole above, unless the controller serves one namespace) and ownRules (in
the release's namespace), both names of templates.
*/}}
{{- define "paddlewheel.bindings" -}}
{{- $one := ne .values.namespace "" }}
{{- if and .clusterRules (not $one) }}
{{- include .clusterRules .root | nindent 2 }}
{{- end }}
---
{{ include "paddlewheel.binding" (dict "root" .root "account" .name "kind" (ternary "Role" "ClusterRole" $one) "role" (printf "paddlewheel-%s" .name) "namespace" .values.namespace) }}
{{- if and .clusterRules $one }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: paddlewheel-{{ .name }}-cluster
  labels: {{- include "paddlewheel.labels" . | nindent 4 }}
rules: {{- include .clusterRules .root | nindent 2 }}
---
{{ include "paddlewheel.binding" (dict "root" .root "account" .name "kind" "ClusterRole" "role" (printf "paddlewheel-%s-cluster" .name) "namespace" "") }}
{{- end }}
{{- if .ownRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "paddlewheel.labels" . | nindent 4 }}
rules: {{- include .ownRules .root | nindent 2 }}
---
{{ include "paddlewheel.binding" (dict "root" .root "account" .name "kind" "Role" "role" .name "namespace" .root.Release.Namespace) }}
{{- end }}
{{- end }}

{{/*
Binds a service account of the release to a role of the kind: in the namespace, or in the whole cluster when it is "". Arguments:
root, account, kind, role, namespace, and optionally name, of the binding.
*/}}
{{- define "paddlewheel.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (ne .namespace "") }}
metadata:
  name: {{ .name | default .role }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "paddlewheel.labels" (dict "root" .root "name" .account) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .role }}}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/*
Those of the namespaces `names` that objects can be created in, as a JSON array: one that is gone, or is being deleted, must not stop
an upgrade. The release's own may be created after this. Without a cluster, as in `helm template`, it is all of them.
*/}}
{{- define "paddlewheel.existing" -}}
{{- $found := list }}
{{- $hasCluster := lookup "v1" "Namespace" "" "default" }}
{{- range $name := .names }}
{{- $namespace := lookup "v1" "Namespace" "" $name }}
{{- $isThere := and $namespace (not (dig "metadata" "deletionTimestamp" "" $namespace)) }}
{{- if or $isThere (not $hasCluster) (eq $name $.root.Release.Namespace) }}
{{- $found = append $found $name }}
{{- end }}
{{- end }}
{{- $found | toRawJson }}
{{- end }}

{{/* Namespaces that values name, in which RoleBindings would be made if they existed, as a JSON array. */}}
{{- define "paddlewheel.missing" -}}
{{- $named := without .Values.datasetController.namespaces "*" }}
{{- if include "paddlewheel.busTokens" . }}
{{- range .Values.nats.subscribers }}
{{- if .members }}
{{- $named = concat $named (.namespaces | default list) }}
{{- end }}
{{- end }}
{{- end }}
{{- $existing := include "paddlewheel.existing" (dict "root" . "names" $named) | fromJsonArray }}
{{- $missing := list }}
{{- range uniq $named }}
{{- if not (has . $existing) }}
{{- $missing = append $missing . }}
{{- end }}
{{- end }}
{{- $missing | toRawJson }}
{{- end }}
