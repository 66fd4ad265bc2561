{{/* The NATS server's configuration file. */}}
{{- define "paddlewheel.natsConfig" -}}
{{- $nats := .Values.nats -}}
{{- $replicas := int (include "paddlewheel.natsReplicas" .) -}}
port: 4222
# It asks for no login, so it listens on loopback. The container `config` answers probes.
http: "127.0.0.1:8223"
# Not an option of the program: with that, the server refuses to reload this file.
server_name: $POD_NAME
pid_file: /run/nats/nats.pid
# Subscriptions of each connection, at most. Each takes memory: 4 KB if it matches all streams. NATS ignores limits in the
# permissions that bus-auth grants.
max_subscriptions: 500
jetstream {
  store_dir: /data
  max_memory_store: "{{ $nats.jetstream.maxMemoryStore | replace "i" "" }}"
  max_file_store: "{{ $nats.jetstream.maxFileStore | replace "i" "" }}"
  sync_interval: $SYNC_INTERVAL
}
tls {
  {{- include "paddlewheel.natsTlsFiles" . | nindent 2 }}
  timeout: 5
}
# Public keys of bus-auth, from its certificate.
include "keys.conf"
# bus-auth is asked about every other connection.
authorization {
  timeout: 5
  auth_callout { issuer: $BUS_AUTH_ISSUER, auth_users: [$BUS_AUTH_USER], account: BUS_AUTH, xkey: $BUS_AUTH_XKEY }
}
# Generated from paddlewheel.bus.admin.permissions: an account for the streams, one per role, one per team of subscribers.
accounts {
  {{- range $name, $account := omit (include "paddlewheel.natsAccounts" . | fromJson) "BUS_AUTH" }}
  {{ $name | quote }}: {{ $account | toRawJson }}
  {{- end }}
  BUS_AUTH: {
    users: [{
      nkey: $BUS_AUTH_USER
      permissions: {subscribe: {allow: ["$SYS.REQ.USER.AUTH", "_INBOX_bus-auth.>"]}, publish: {allow: ["$SYS._INBOX.>"]}}
    }]
  }
}
# No client uses this account.
system_account: SYS
{{- if gt $replicas 1 }}
cluster {
  name: paddlewheel
  port: 6222
  # Clients connect to the Service; pod addresses are useless to a client behind a forwarded port.
  no_advertise: true
  tls {
    {{- include "paddlewheel.natsTlsFiles" . | nindent 4 }}
    # A route has full permissions: only the servers' certificate contains the route names.
    verify_cert_and_check_known_urls: true
    timeout: 5
  }
  routes: [
    {{- range $index := until $replicas }}
    nats://nats-{{ $index }}.nats-servers.{{ $.Release.Namespace }}.svc:6222
    {{- end }}
  ]
}
{{- end }}
{{ end }}

{{/* Accounts by name: those of the roles, and what each of nats.services and nats.subscribers adds. */}}
{{- define "paddlewheel.natsAccounts" -}}
{{- $file := .Files.Get "files/bus-accounts.json" | fromJson }}
{{- $accounts := $file.accounts }}
{{- $home := index $accounts "PADDLEWHEEL" }}
{{- $names := list }}
{{- $taken := without $file.roles "subscriber" }}
{{- range .Values.nats.subscribers }}
{{- if or (has .name $taken) (has .name $names) }}
{{- fail (printf "nats.subscribers: the name %s is taken; choose one that is used once and is none of %s" .name (join ", " $taken)) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $lives := list }}
{{- $streams := list }}
{{- range $service := include "paddlewheel.natsServices" . | fromJsonArray }}
{{- $added := $file.service | toRawJson | replace "@service@" .name | fromJson }}
{{- $account := $added.account }}
{{- $_ := set $home "exports" (concat $home.exports $added.exports) }}
{{- $parts := list }}
{{- range .publishes }}
{{- $parts = append $parts (dict "context" .context "part" $added.publishes) }}
{{- $live := $added.live | toRawJson | replace "@context@" .context | replace "@CONTEXT@" (upper .context) | fromJson }}
{{- $lives = append $lives $live }}
{{- $streams = append $streams (printf "PW_%s" (upper .context)) }}
{{- $_ := set $home "exports" (append $home.exports (dict "stream" $live.subject "accounts" (list "WATCHERS"))) }}
{{- $_ := set $accounts.WATCHERS "imports" (append $accounts.WATCHERS.imports $live.all) }}
{{- end }}
{{- range .follows }}
{{- $parts = append $parts (dict "context" . "part" $added.follows) }}
{{- end }}
{{- range $parts }}
{{- $part := .part | toRawJson | replace "@context@" .context | replace "@CONTEXT@" (upper .context) | fromJson }}
{{- $_ := set $account "imports" (concat $account.imports $part.imports) }}
{{- $_ := set $home "exports" (concat $home.exports $part.exports) }}
{{- end }}
{{- $_ := set $accounts .name $account }}
{{- end }}
{{- range .Values.nats.subscribers }}
{{- $added := $file.team | toRawJson | replace "@team@" .name | fromJson }}
{{- $imports := $added.account.imports }}
{{- range $stream := $streams }}
{{- $copy := $added.copy | toRawJson | replace "PW_@CONTEXT@" $stream | fromJson }}
{{- $imports = concat $imports $copy.imports }}
{{- $_ := set $home "exports" (concat $home.exports $copy.exports) }}
{{- $_ := set $added.account.jetstream "max_streams" (add1 $added.account.jetstream.max_streams) }}
{{- end }}
{{- $heard := concat $added.live $lives }}
{{- range $live := $heard }}
{{- if not (has (dict "stream" $live.subject "accounts" $names) $home.exports) }}
{{- $_ := set $home "exports" (append $home.exports (dict "stream" $live.subject "accounts" $names)) }}
{{- end }}
{{- end }}
{{- $namespaces := .namespaces }}
{{- range $live := $heard }}
{{- if $namespaces }}
{{- range $namespace := $namespaces }}
{{- $imports = append $imports ($live.one | toRawJson | replace "@namespace@" $namespace | fromJson) }}
{{- end }}
{{- else }}
{{- $imports = append $imports $live.all }}
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

{{/* The services of others as bus-installer and bus-auth read them, complete. Fails for names that are taken or unknown. */}}
{{- define "paddlewheel.natsServices" -}}
{{- $file := .Files.Get "files/bus-accounts.json" | fromJson }}
{{- $ours := list }}
{{- $known := list }}
{{- range $name, $stream := $file.streams }}
{{- if hasPrefix "PW_" $name }}
{{- $ours = append $ours (trimPrefix "PW_" $name | lower) }}
{{- if $stream.copied }}
{{- $known = append $known (trimPrefix "PW_" $name | lower) }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range .Values.nats.subscribers }}
{{- $names = append $names .name }}
{{- end }}
{{- $reserved := $file.service.reserved }}
{{- $theirs := list }}
{{- $services := list }}
{{- range $index, $service := .Values.nats.services }}
{{- $field := printf "nats.services[%d]" $index }}
{{- range $prefix := $reserved.prefixes }}
{{- if hasPrefix $prefix (printf "%s-" $service.name) }}
{{- fail (printf "%s.name: %s begins with %s, which the bus uses itself; choose another name" $field $service.name (trimSuffix "-" $prefix)) }}
{{- end }}
{{- end }}
{{- if or (has $service.name $reserved.names) (has $service.name $names) }}
{{- fail (printf "%s.name: %s is taken; choose a name that no other service and none of nats.subscribers has, and none of %s" $field $service.name (join ", " $reserved.names)) }}
{{- end }}
{{- $names = append $names $service.name }}
{{- $publishes := list }}
{{- range $each := $service.publishes }}
{{- if or (has $each.context $ours) (has $each.context $theirs) }}
{{- fail (printf "%s.publishes: the context %s is taken; choose one that no other service publishes, and none of %s" $field $each.context (join ", " $ours)) }}
{{- end }}
{{- $theirs = append $theirs $each.context }}
{{- $publishes = append $publishes (dict "context" $each.context "maxBytes" ($each.maxBytes | default "64Mi") "maxAge" ($each.maxAge | default "7d")) }}
{{- end }}
{{- $services = append $services (dict "name" $service.name "publishes" $publishes "follows" ($service.follows | default list)) }}
{{- end }}
{{- $known = concat $known $theirs }}
{{- range $index, $service := $services }}
{{- range $context := $service.follows }}
{{- if not (has $context $known) }}
{{- fail (printf "nats.services[%d].follows: nobody publishes %s; name contexts of %s" $index $context (join ", " $known)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $services | toRawJson }}
{{- end }}

{{/* The teams of subscribers as bus-installer wants them. A server of your own has none: all read the same streams. */}}
{{- define "paddlewheel.natsTeams" -}}
{{- $teams := list }}
{{- if .Values.nats.enabled }}
{{- range .Values.nats.subscribers }}
{{- $teams = append $teams (dict "name" .name "namespaces" (.namespaces | default list) "maxBytes" (.maxBytes | default "")) }}
{{- end }}
{{- end }}
{{- $teams | toRawJson }}
{{- end }}

{{/* The members of a team or a service of others, "namespace/account", as subjects of a RoleBinding. */}}
{{- define "paddlewheel.busMembers" -}}
{{- $subjects := list }}
{{- range .members }}
{{- $subjects = append $subjects (dict "kind" "ServiceAccount" "namespace" (splitList "/" . | first) "name" (splitList "/" . | last)) }}
{{- end }}
{{- $subjects | toRawJson }}
{{- end }}

{{- define "paddlewheel.natsTlsFiles" -}}
ca_file: /etc/nats-tls/ca.crt
cert_file: /etc/nats-tls/tls.crt
key_file: /etc/nats-tls/tls.key
{{- end }}

{{/* The profile's defaults: number of servers, whether they must be on different nodes, sync interval, persistence. */}}

{{- define "paddlewheel.natsReplicas" -}}
{{- $byProfile := ternary 3 1 (eq .Values.profile "production") -}}
{{ .Values.nats.replicas | default $byProfile }}
{{- end }}

{{/* "required" or "preferred". */}}
{{- define "paddlewheel.natsAntiAffinity" -}}
{{- $byProfile := ternary "required" "preferred" (eq .Values.profile "production") -}}
{{ .Values.nats.antiAffinity | default $byProfile }}
{{- end }}

{{/* Keeps the servers on different nodes: a podAntiAffinity. */}}
{{- define "paddlewheel.natsApart" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "paddlewheel.selector" (dict "name" "nats") | fromYaml)) }}
{{- if eq "required" (include "paddlewheel.natsAntiAffinity" .) }}
{{- dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) | toYaml }}
{{- else }}
{{- dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) | toYaml }}
{{- end }}
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

{{/* Bytes that the streams, and the teams' copies of those of facts, may take on each server: on disk and in memory. */}}
{{- define "paddlewheel.natsNeeds" -}}
{{- $teams := include "paddlewheel.natsTeams" . | fromJsonArray }}
{{- $memory := 0 }}
{{- $needs := 0 }}
{{- $copied := list }}
{{- range $name, $stream := (.Files.Get "files/bus-accounts.json" | fromJson).streams }}
{{- $asked := dig $name "maxBytes" "" $.Values.nats.streams }}
{{- $bytes := int64 $stream.bytes }}
{{- if $asked }}
{{- $bytes = include "paddlewheel.bytes" $asked | int64 }}
{{- end }}
{{- if $stream.memory }}
{{- $memory = add $memory $bytes }}
{{- else }}
{{- $needs = add $needs $bytes }}
{{- end }}
{{- if $stream.copied }}
{{- $copied = append $copied (dict "bytes" $bytes "memory" $stream.memory) }}
{{- end }}
{{- end }}
{{- range $service := include "paddlewheel.natsServices" . | fromJsonArray }}
{{- range $service.publishes }}
{{- $bytes := include "paddlewheel.bytes" .maxBytes | int64 }}
{{- $needs = add $needs $bytes }}
{{- $copied = append $copied (dict "bytes" $bytes "memory" false) }}
{{- end }}
{{- end }}
{{- range $team := $teams }}
{{- range $copy := $copied }}
{{- $most := $copy.bytes }}
{{- with $team.maxBytes }}
{{- $most = min $most (include "paddlewheel.bytes" . | int64) }}
{{- end }}
{{- if $copy.memory }}
{{- $memory = add $memory $most }}
{{- else }}
{{- $needs = add $needs $most }}
{{- end }}
{{- end }}
{{- end }}
{{- $share := include "paddlewheel.streamReplicas" . | int }}
{{- $servers := include "paddlewheel.natsReplicas" . | int }}
{{- dict "maxFileStore" (div (mul $needs $share) $servers) "maxMemoryStore" (div (mul $memory $share) $servers) | toRawJson }}
{{- end }}

{{/* Fails when the server has no room for what it is to keep: the last streams and copies would never be made. */}}
{{- define "paddlewheel.checkNatsRoom" -}}
{{- range $field, $bytes := include "paddlewheel.natsNeeds" . | fromJson }}
{{- $needs := int64 $bytes }}
{{- $store := index $.Values.nats.jetstream $field }}
{{- if gt $needs (include "paddlewheel.bytes" $store | int64) }}
{{- $least := div (add $needs 1048575) 1048576 }}
{{- $teams := include "paddlewheel.natsTeams" $ | fromJsonArray | len }}
{{- $beside := ternary "nats.persistence.size" "nats.resources.limits.memory" (eq $field "maxFileStore") }}
{{- fail (printf "nats.jetstream.%s=%s is less than the streams and their copies for %d nats.subscribers may take (%dMi): set nats.jetstream.%s=%dMi and %s to more than that, or a smaller maxBytes of nats.subscribers, or remove subscribers or services" $field $store $teams $least $field $least $beside) }}
{{- end }}
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

{{/* "true" when clients show service-account tokens: to the chart's server, else "". */}}
{{- define "paddlewheel.busTokens" -}}
{{- if .Values.nats.enabled }}true{{ end }}
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
{{- if $faults }}
{{- fail (printf "profile=production refuses %s; or set profile=development" (join ", " $faults)) }}
{{- end }}
{{- end }}
{{- end }}
