{{/*
The API server's addresses as {"cidrs": [...]}: its Service's and its endpoints', which plugins see after DNAT. [] without a cluster.
*/}}
{{- define "paddlewheel.apiServer" -}}
{{- $cidrs := .Values.networkPolicies.runtime.apiServer }}
{{- if not $cidrs }}
{{- $addresses := list }}
{{- $service := lookup "v1" "Service" "default" "kubernetes" }}
{{- if and $service $service.spec }}
{{- $addresses = concat $addresses $service.spec.clusterIPs }}
{{- end }}
{{- range $slice := (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items }}
{{- if eq (get ($slice.metadata.labels | default dict) "kubernetes.io/service-name") "kubernetes" }}
{{- range $endpoint := $slice.endpoints }}
{{- $addresses = concat $addresses $endpoint.addresses }}
{{- end }}
{{- end }}
{{- end }}
{{- range $address := $addresses | uniq }}
{{- $cidrs = append $cidrs (printf "%s/%s" $address (ternary "128" "32" (contains ":" $address))) }}
{{- end }}
{{- end }}
{{- dict "cidrs" $cidrs | toJson }}
{{- end }}
