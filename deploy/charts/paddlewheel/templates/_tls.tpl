{{/* Certificates of the bus: bus-auth makes them. */}}

{{/* "true" when the services check the server by the authority in ConfigMap bus-ca, else "". */}}
{{- define "paddlewheel.busTls" -}}
{{- if or .Values.nats.enabled .Values.nats.tls.existing }}true{{ end }}
{{- end }}

{{/* DNS names of the server's certificate: for clients, a forwarded port, and the servers among themselves. */}}
{{- define "paddlewheel.busServerNames" -}}
{{- $namespace := .Release.Namespace }}
{{- $names := list "localhost" }}
{{- range $service := list "nats" "nats-servers" }}
{{- $names = concat $names (list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.cluster.local" $service $namespace)) }}
{{- end }}
{{- range $index := until 7 }}
{{- $names = append $names (printf "nats-%d.nats-servers.%s.svc" $index $namespace) }}
{{- end }}
{{- concat $names .Values.nats.tls.serverNames | toJson }}
{{- end }}

{{/*
Data of a Secret or ConfigMap that bus-auth fills, as a line of YAML: what an earlier release of the chart has put there, or nothing.
Helm takes away what it rendered before and does not render again. Arguments: root, kind, name.
*/}}
{{- define "paddlewheel.renderedBefore" -}}
{{- $found := lookup "v1" .kind .root.Release.Namespace .name }}
{{- if and $found $found.data (not (dig "metadata" "annotations" "paddlepaddle.org/made-by" "" $found)) }}
data: {{- toYaml $found.data | nindent 2 }}
{{- end }}
{{- end }}

{{/* The type of such a Secret, which cannot change: earlier releases made Secrets of the type for TLS. Arguments: root, name. */}}
{{- define "paddlewheel.secretType" -}}
{{ get (lookup "v1" "Secret" .root.Release.Namespace .name | default dict) "type" | default "Opaque" }}
{{- end }}

{{/* Volume with the authority's certificate, and a token for the chart's server (bus-auth has a key). Arguments: root, name. */}}
{{- define "paddlewheel.busTokenVolume" -}}
name: bus
projected:
  defaultMode: 288
  sources:
    - configMap: {name: bus-ca, items: [{key: ca.crt, path: ca.crt}]}
    {{- if and (ne .name "bus-auth") (include "paddlewheel.busTokens" .root) }}
    - serviceAccountToken: {path: token, audience: paddlewheel-bus, expirationSeconds: 3600}
    {{- end }}
{{- end }}
