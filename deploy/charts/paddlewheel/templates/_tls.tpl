{{/* Certificates of the bus: issued once, reused by later upgrades. */}}

{{/* "true" when the services check the server by the authority in ConfigMap bus-ca, else "". */}}
{{- define "paddlewheel.busTls" -}}
{{- if or .Values.nats.enabled .Values.nats.tls.existing }}true{{ end }}
{{- end }}

{{/* DNS names of the server's certificate: for clients, a forwarded port, and the servers among themselves. */}}
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
The certificates of this render, by name: {"ca": {"crt", "key"}, "secrets": {name: {"ca.crt", "tls.crt", "tls.key"}}}, base64,
and "names": {name: hash of the certificate's DNS names}.
Existing certificates are kept as long as their CA and their DNS names are. Cached in .Values, because every include would issue new ones.
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
{{- $secrets := dict }}
{{- $names := dict }}
{{- range $name, $dns := $wanted }}
{{- $hash := $dns | toJson | sha256sum }}
{{- $_ := set $names $name $hash }}
{{- $kept := lookup "v1" "Secret" $.Release.Namespace $name }}
{{- $had := dig "metadata" "annotations" "paddlepaddle.org/dns-names" "" $kept }}
{{- if and $kept $kept.data (eq $had $hash) (eq (index $kept.data "ca.crt") (b64enc $ca.Cert)) }}
{{- $_ := set $secrets $name (pick $kept.data "ca.crt" "tls.crt" "tls.key") }}
{{- else }}
{{- $addresses := ternary (list "127.0.0.1") (list) (eq $name "nats-tls-server") }}
{{- $signed := genSignedCertWithKey (first $dns) $addresses $dns $days $ca (genPrivateKey "ecdsa") }}
{{- $_ := set $secrets $name (dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $signed.Cert) "tls.key" (b64enc $signed.Key)) }}
{{- end }}
{{- end }}
{{- $_ := set .Values.nats.tls "made" (dict "ca" (dict "crt" (b64enc $ca.Cert) "key" (b64enc $ca.Key)) "secrets" $secrets "names" $names) }}
{{- end }}
{{- .Values.nats.tls.made | toJson }}
{{- end }}

{{/* bus-auth's key as {"tls.crt", "tls.key"}, base64: made once, kept by later upgrades. Cached as above. */}}
{{- define "paddlewheel.busAuthKey" -}}
{{- if not (hasKey .Values.busAuth "made") }}
{{- $kept := lookup "v1" "Secret" .Release.Namespace "bus-auth-key" }}
{{- if and $kept $kept.data }}
{{- $_ := set .Values.busAuth "made" (pick $kept.data "tls.crt" "tls.key") }}
{{- else }}
{{- $made := genSelfSignedCertWithKey "bus-auth" (list) (list "bus-auth") (int .Values.nats.tls.validityDays) (genPrivateKey "ed25519") }}
{{- $_ := set .Values.busAuth "made" (dict "tls.crt" (b64enc $made.Cert) "tls.key" (b64enc $made.Key)) }}
{{- end }}
{{- end }}
{{- .Values.busAuth.made | toJson }}
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
