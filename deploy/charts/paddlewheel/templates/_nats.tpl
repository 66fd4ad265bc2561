{{/* The NATS server's configuration file. */}}
{{- define "paddlewheel.natsConfig" -}}
{{- $nats := .Values.nats -}}
port: 4222
http_port: 8222
jetstream {
  store_dir: /data
  max_memory_store: "{{ $nats.jetstream.maxMemoryStore | replace "i" "" }}"
  max_file_store: "{{ $nats.jetstream.maxFileStore | replace "i" "" }}"
  sync_interval: "{{ $nats.jetstream.syncInterval }}"
}
{{- if gt (int $nats.replicas) 1 }}
cluster {
  name: paddlewheel
  port: 6222
  routes: [
    {{- range $index := until (int $nats.replicas) }}
    nats://nats-{{ $index }}.nats-servers.{{ $.Release.Namespace }}.svc:6222
    {{- end }}
  ]
}
{{- end }}
{{ end }}
