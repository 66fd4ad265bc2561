{{/* The NATS server's configuration file. */}}
{{- define "paddlewheel.natsConfig" -}}
{{- $nats := .Values.nats -}}
{{- $replicas := int (include "paddlewheel.natsReplicas" .) -}}
port: 4222
http_port: 8222
jetstream {
  store_dir: /data
  max_memory_store: "{{ $nats.jetstream.maxMemoryStore | replace "i" "" }}"
  max_file_store: "{{ $nats.jetstream.maxFileStore | replace "i" "" }}"
  sync_interval: "{{ include "paddlewheel.natsSyncInterval" . }}"
}
{{- if $nats.tls.enabled }}
tls {
  {{- include "paddlewheel.natsTlsFiles" . | nindent 2 }}
  {{- if not (include "paddlewheel.busTokens" .) }}
  # The DNS name in a client's certificate is its user; clients without a certificate are rejected.
  verify_and_map: true
  {{- end }}
  timeout: 5
}
{{- if include "paddlewheel.busTokens" . }}
# Public keys of bus-auth, from its certificate.
include "../nats-callout/keys.conf"
# bus-auth is asked about every other connection.
authorization {
  timeout: 5
  auth_callout { issuer: $BUS_AUTH_ISSUER, auth_users: [$BUS_AUTH_USER], account: BUS_AUTH, xkey: $BUS_AUTH_XKEY }
}
{{- end }}
# Generated from paddlewheel.bus.admin.permissions: an account for the streams, one per role, one per team of subscribers.
accounts {
  {{- $all := include "paddlewheel.natsAccounts" . | fromJson }}
  {{- $tokens := include "paddlewheel.busTokens" . }}
  {{- range $name, $account := ternary (omit $all "BUS_AUTH") $all (eq "true" $tokens) }}
  {{ $name | quote }}: {{ ternary (omit $account "users") $account (eq "true" (include "paddlewheel.busTokens" $)) | toRawJson }}
  {{- end }}
  {{- if $tokens }}
  {{- $reader := (.Files.Get "files/bus-accounts.json" | fromJson).reader }}
  BUS_AUTH: {
    imports: {{ $all.BUS_AUTH.imports | toRawJson }}
    exports: {{ $all.BUS_AUTH.exports | toRawJson }}
    users: [{
      nkey: $BUS_AUTH_USER
      permissions: {
        subscribe: {allow: {{ concat (list "$SYS.REQ.USER.AUTH" "_INBOX_bus-auth.>") $reader.subscribe | toRawJson }}}
        # `_R_` is where the server has the answers to what other accounts ask.
        publish: {
          allow: {{ concat (list "$SYS._INBOX.>" "_R_.>") $reader.publish | toRawJson }}
          deny: {{ $reader.publish_denied | toRawJson }}
        }
      }
    }]
  }
  {{- end }}
}
# Nobody is in this account.
system_account: SYS
{{- end }}
{{- if gt $replicas 1 }}
cluster {
  name: paddlewheel
  port: 6222
  # Clients connect to the Service; pod addresses are useless to a client behind a forwarded port.
  no_advertise: true
  {{- if $nats.tls.enabled }}
  tls {
    {{- include "paddlewheel.natsTlsFiles" . | nindent 4 }}
    # A route has full permissions: only the servers' certificate contains the route names.
    verify_cert_and_check_known_urls: true
    timeout: 5
  }
  {{- end }}
  routes: [
    {{- range $index := until $replicas }}
    nats://nats-{{ $index }}.nats-servers.{{ $.Release.Namespace }}.svc:6222
    {{- end }}
  ]
}
{{- end }}
{{ end }}

{{/* Accounts by name: those of the roles, and what each of nats.subscribers adds. */}}
{{- define "paddlewheel.natsAccounts" -}}
{{- $file := .Files.Get "files/bus-accounts.json" | fromJson }}
{{- $accounts := $file.accounts }}
{{- $home := index $accounts "PADDLEWHEEL" }}
{{- $names := list }}
{{- /* `server`: its certificate would be in the servers' Secret. */}}
{{- $taken := concat (list "server") (keys $file.users | sortAlpha) }}
{{- range .Values.nats.subscribers }}
{{- if or (has .name $taken) (has .name $names) }}
{{- fail (printf "nats.subscribers: the name %s is taken; choose one that is used once and is none of %s" .name (join ", " $taken)) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- range .Values.nats.subscribers }}
{{- $added := $file.team | toRawJson | replace "@team@" .name | fromJson }}
{{- $imports := $added.account.imports }}
{{- range $live := $added.live }}
{{- $origin := index $accounts $live.account }}
{{- if not (has (dict "stream" $live.subject "accounts" $names) $origin.exports) }}
{{- $_ := set $origin "exports" (append $origin.exports (dict "stream" $live.subject "accounts" $names)) }}
{{- end }}
{{- end }}
{{- $namespaces := .namespaces }}
{{- range $live := $added.live }}
{{- if $namespaces }}
{{- range $namespace := $namespaces }}
{{- $imports = append $imports (dict "stream" (dict "account" $live.account "subject" (replace "@namespace@" $namespace $live.within))) }}
{{- end }}
{{- else }}
{{- $imports = append $imports (dict "stream" (dict "account" $live.account "subject" $live.subject)) }}
{{- end }}
{{- end }}
{{- $limits := $.Values.nats.subscriberLimits }}
{{- $jetstream := merge (dict "max_consumers" (int $limits.consumers)) $added.account.jetstream }}
{{- $connections := dict "max_connections" (int $limits.connections) }}
{{- $_ := set $accounts .name (merge (dict "imports" $imports "jetstream" $jetstream "limits" $connections) $added.account) }}
{{- $_ := set $home "exports" (concat $home.exports $added.exports) }}
{{- $_ := set $home "imports" (concat $home.imports $added.imports) }}
{{- end }}
{{- $limits := .Values.nats.roleLimits }}
{{- $most := dict "cache-runtime" $limits.agents "evaluator" $limits.evaluators "WATCHERS" $limits.watchers }}
{{- range $name, $account := omit $accounts "PADDLEWHEEL" "SYS" "BUS_AUTH" }}
{{- if not (has $name $names) }}
{{- $_ := set $account "limits" (dict "max_connections" (get $most $name | default $limits.services | int)) }}
{{- end }}
{{- end }}
{{- $accounts | toRawJson }}
{{- end }}

{{/* The teams of subscribers as bus-installer wants them. Without permissions there are none: all read the same streams. */}}
{{- define "paddlewheel.natsTeams" -}}
{{- $teams := list }}
{{- if and .Values.nats.enabled .Values.nats.tls.enabled }}
{{- range .Values.nats.subscribers }}
{{- $teams = append $teams (dict "name" .name "namespaces" (.namespaces | default list)) }}
{{- end }}
{{- end }}
{{- $teams | toRawJson }}
{{- end }}

{{- define "paddlewheel.natsTlsFiles" -}}
ca_file: /etc/nats-tls/ca.crt
cert_file: /etc/nats-tls/tls.crt
key_file: /etc/nats-tls/tls.key
{{- end }}

{{/* The profile's defaults: number of servers, sync interval, persistence. */}}

{{- define "paddlewheel.natsReplicas" -}}
{{- $byProfile := ternary 3 1 (eq .Values.profile "production") -}}
{{ .Values.nats.replicas | default $byProfile }}
{{- end }}

{{- define "paddlewheel.natsSyncInterval" -}}
{{- $byProfile := ternary "always" "2m" (eq .Values.profile "production") -}}
{{ .Values.nats.jetstream.syncInterval | default $byProfile }}
{{- end }}

{{/* "true" or "". */}}
{{- define "paddlewheel.natsPersistence" -}}
{{- $asked := .Values.nats.persistence.enabled | toString -}}
{{- $byProfile := eq .Values.profile "production" | toString -}}
{{- if eq "true" (ternary $byProfile $asked (eq $asked "")) }}true{{ end }}
{{- end }}

{{/* Replicas of every stream: three survive the loss of one server, more only add cost. */}}
{{- define "paddlewheel.streamReplicas" -}}
{{ min 3 (include "paddlewheel.natsReplicas" . | int) }}
{{- end }}

{{/* Bytes of a size such as 3Gi. */}}
{{- define "paddlewheel.bytes" -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{ mul (regexFind "^[0-9]+" .) (index $units (regexFind "[A-Z]i$" .)) }}
{{- end }}

{{/* Bytes that the streams, and the teams' copies of those of facts, may take on each server. */}}
{{- define "paddlewheel.natsNeeds" -}}
{{- $teams := include "paddlewheel.natsTeams" . | fromJsonArray | len }}
{{- $needs := 0 }}
{{- range $name, $stream := (.Files.Get "files/bus-accounts.json" | fromJson).streams }}
{{- $asked := dig $name "maxBytes" "" $.Values.nats.streams }}
{{- $bytes := int64 $stream.bytes }}
{{- if $asked }}
{{- $bytes = include "paddlewheel.bytes" $asked | int64 }}
{{- end }}
{{- $needs = add $needs (mul $bytes (ternary (add 1 $teams) 1 $stream.copied)) }}
{{- end }}
{{- div (mul $needs (include "paddlewheel.streamReplicas" . | int)) (include "paddlewheel.natsReplicas" . | int) }}
{{- end }}

{{/* Fails when the server has no room for what it is to keep: the last streams and copies would never be made. */}}
{{- define "paddlewheel.checkNatsRoom" -}}
{{- $needs := include "paddlewheel.natsNeeds" . | int64 }}
{{- $store := .Values.nats.jetstream.maxFileStore }}
{{- if gt $needs (include "paddlewheel.bytes" $store | int64) }}
{{- $least := div (add $needs 1048575) 1048576 }}
{{- $teams := include "paddlewheel.natsTeams" . | fromJsonArray | len }}
{{- fail (printf "nats.jetstream.maxFileStore=%s is less than the streams and their copies for %d nats.subscribers may take (%dMi): set nats.jetstream.maxFileStore=%dMi and nats.persistence.size to more than that, or remove subscribers" $store $teams $least $least) }}
{{- end }}
{{- end }}

{{/* Why the servers' volumes cannot be as the values say, "" when they can. `found`: their StatefulSet in the cluster, if any. */}}
{{- define "paddlewheel.natsVolumeProblem" -}}
{{- range dig "spec" "volumeClaimTemplates" list .found }}
{{- $size := .spec.resources.requests.storage }}
{{- if ne (include "paddlewheel.bytes" $size) (include "paddlewheel.bytes" $.size) }}
{{- printf "nats.persistence.size=%s: the volumes of StatefulSet nats have %s, which an upgrade cannot change. Keep them with nats.persistence.size=%s and a nats.jetstream.maxFileStore below that, or enlarge them first as docs/tasks/upgrade.md says" $.size $size $size }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" when clients authenticate by service-account tokens, else "". */}}
{{- define "paddlewheel.busTokens" -}}
{{- if eq .Values.nats.auth "tokens" }}true{{ end }}
{{- end }}

{{/* Fails when tokens cannot be used with the other values. */}}
{{- define "paddlewheel.checkTokens" -}}
{{- if and (include "paddlewheel.busTokens" .) (not (and .Values.nats.enabled .Values.nats.tls.enabled)) }}
{{- fail "nats.auth=tokens needs nats.enabled=true and nats.tls.enabled=true: tokens are sent over TLS only, to the chart's own server" }}
{{- end }}
{{- end }}

{{/* Fails when the values do not meet the guarantees of the profile. */}}
{{- define "paddlewheel.checkProfile" -}}
{{- if and (eq .Values.profile "production") .Values.nats.enabled }}
{{- $faults := list }}
{{- if lt (int (include "paddlewheel.natsReplicas" .)) 3 }}
{{- $faults = append $faults (printf "nats.replicas=%s (an acknowledged fact is lost with its server; set 3)" (include "paddlewheel.natsReplicas" .)) }}
{{- end }}
{{- if ne (include "paddlewheel.natsSyncInterval" .) "always" }}
{{- $faults = append $faults (printf "nats.jetstream.syncInterval=%s (an acknowledged fact may not be on disk; set always)" (include "paddlewheel.natsSyncInterval" .)) }}
{{- end }}
{{- if not (include "paddlewheel.natsPersistence" .) }}
{{- $faults = append $faults "nats.persistence.enabled=false (facts are lost with the pod; set true)" }}
{{- end }}
{{- if not .Values.nats.tls.enabled }}
{{- $faults = append $faults "nats.tls.enabled=false (anyone may publish anything; set true)" }}
{{- end }}
{{- if $faults }}
{{- fail (printf "profile=production refuses %s; or set profile=development" (join ", " $faults)) }}
{{- end }}
{{- end }}
{{- end }}
