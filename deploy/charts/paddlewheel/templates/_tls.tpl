{{/* Certificates of the bus: made once, found again by later upgrades. */}}

{{/* Says "true" when the services identify themselves to the bus by certificate. */}}
{{- define "paddlewheel.busTls" -}}
{{- if and .Values.nats.tls.enabled (or .Values.nats.enabled .Values.nats.tls.existing) }}true{{ end }}
{{- end }}

{{/* DNS names of the server's certificate: clients, a forwarded port, and servers among themselves. */}}
{{- define "paddlewheel.busServerNames" -}}
{{- $namespace := .Release.Namespace }}
{{- $names := list "localhost" }}
{{- range $service := list "nats" "nats-servers" }}
{{- $names = concat $names (list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.%s" $service $namespace $.Values.nats.tls.clusterDomain)) }}
{{- end }}
{{- range $index := until 7 }}
{{- $names = append $names (printf "nats-%d.nats-servers.%s.svc" $index $namespace) }}
{{- end }}
{{- dict "names" (concat $names .Values.nats.tls.serverNames) | toJson }}
{{- end }}

{{/*
Certificates of this render, by name: {"ca": {"crt", "key"}, "secrets": {name: {"ca.crt", "tls.crt", "tls.key"}}}, base64.
What the cluster holds is kept as long as its CA does. Kept in .Values, because every include would make others.
*/}}
{{- define "paddlewheel.busCertificates" -}}
{{- if not (hasKey .Values.nats.tls "made") }}
{{- $days := int .Values.nats.tls.validityDays }}
{{- $found := lookup "v1" "Secret" .Release.Namespace "nats-ca" }}
{{- $ca := dict }}
{{- if and $found $found.data }}
{{- $ca = buildCustomCert (index $found.data "tls.crt") (index $found.data "tls.key") }}
{{- else }}
{{- $ca = genCAWithKey "paddlewheel-bus" $days (genPrivateKey "ecdsa") }}
{{- end }}
{{- $wanted := dict "nats-tls-server" (include "paddlewheel.busServerNames" . | fromJson).names }}
{{- range $role, $user := (.Files.Get "files/bus-accounts.json" | fromJson).users }}
{{- $_ := set $wanted (printf "nats-tls-%s" $role) (list $user) }}
{{- end }}
{{- $secrets := dict }}
{{- range $name, $dns := $wanted }}
{{- $kept := lookup "v1" "Secret" $.Release.Namespace $name }}
{{- if and $kept $kept.data (eq (index $kept.data "ca.crt") (b64enc $ca.Cert)) }}
{{- $_ := set $secrets $name (pick $kept.data "ca.crt" "tls.crt" "tls.key") }}
{{- else }}
{{- $addresses := ternary (list "127.0.0.1") (list) (eq $name "nats-tls-server") }}
{{- $signed := genSignedCertWithKey (first $dns) $addresses $dns $days $ca (genPrivateKey "ecdsa") }}
{{- $_ := set $secrets $name (dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $signed.Cert) "tls.key" (b64enc $signed.Key)) }}
{{- end }}
{{- end }}
{{- $_ := set .Values.nats.tls "made" (dict "ca" (dict "crt" (b64enc $ca.Cert) "key" (b64enc $ca.Key)) "secrets" $secrets) }}
{{- end }}
{{- .Values.nats.tls.made | toJson }}
{{- end }}

{{/* Changes with a Secret's certificate, so that pods are restarted by a new one. Arguments: root, secret. */}}
{{- define "paddlewheel.busCertificateHash" -}}
{{- if not .root.Values.nats.tls.existing -}}
{{ index (include "paddlewheel.busCertificates" .root | fromJson) "secrets" .secret "tls.crt" | sha256sum }}
{{- end }}
{{- end }}
