// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import "slices"

// AgentMetric is one metric of the node agent. Those whose name begins with koordlet_ have the name, the labels and the
// meaning that upstream's koordlet gives them (koordinator-node.md §7.6); the others are ours.
type AgentMetric uint8

// The metrics of the node agent.
const (
	AgentStartTime AgentMetric = iota
	AgentNodeCPU
	AgentNodeMemory
	AgentNodeAllocatable
	AgentContainerRequests
	AgentContainerLimits
	AgentBESuppressCPU
	AgentLSUsedCPU
	AgentBEUsedCPU
	AgentPodEviction
	AgentPodEvictionDetail
	AgentContainerQuota
	AgentContainerBurst
	AgentSharePool
	AgentBESharePool
	AgentSharePoolInfo
	AgentBESharePoolInfo
	AgentPredictedReclaimable
	AgentPredictedPeak
	AgentReclaimable
	AgentReclaimableStatus
	AgentHostApplication
	AgentPodPSI
	AgentContainerPSI
	AgentContainerCPI
	AgentLLC
	AgentNodeMetricNode
	AgentNodeMetricSystem
	AgentNodeMetricNUMA
	AgentNodeMetricNUMASystem
	AgentKubeletRequest
	AgentResourceUpdate
	AgentCollectCPU
	AgentCollectNUMA
	AgentCollectStorage

	AgentSystemCPU
	AgentSystemMemory
	AgentNodePressure
	AgentNUMACPU
	AgentNUMAMemory
	AgentClassPods
	AgentClassCPU
	AgentClassMemory
	AgentClassCPURequests
	AgentClassMemoryRequests
	AgentClassPeak
	AgentPodCPU
	AgentPodMemory
	AgentPodMemoryWithPageCache
	AgentPodThrottled
	AgentPodRunQueueDelay
	AgentPodDiskRead
	AgentPodDiskWrite
	AgentPodReceive
	AgentPodTransmit
	AgentPodAllocLatency
	AgentPodDiskLatency
	AgentPodRTT
	AgentPodLLC
	AgentPodMemoryBandwidth
	AgentPodDisturbed
	AgentContainerCPU
	AgentContainerMemory
	AgentContainerThrottled
	AgentMemoryBandwidth
	AgentBEAllowance
	AgentEvictions
	AgentSourceState
	AgentCollectorState
	AgentNetworkBytes
	AgentNetworkDropped
	AgentLoopState
	AgentLoopDecision
	AgentLoopDuration
	AgentLoopErrors
	AgentReaction
	AgentAPIWrites
	AgentSamples
	AgentReadErrors
	AgentWindowSubjects
	AgentWindowSeries
	AgentWindowBytes
	AgentWindowDropped
	AgentGeneration
	AgentPodsAge
	AgentGoroutines
	AgentLeftOut
	NumAgentMetrics
)

// Labels of the catalogue, in the order in which values are given.
const (
	labelNode = "node"

	valuesAgentNode = "node: name of the Node object"
	valuesPod       = "those of the pods of this node, at most 1024"
	valuesContainer = "those of the containers of this node, at most 2048"
	valuesAmount    = "resource: as in Kubernetes; unit: core, byte or integer (thousandths of a CPU)"
	valuesUsage     = "resource: cpu, memory; unit: core, byte"
	valuesClass     = "class: LSE, LSR, LS, BE, SYSTEM, none"
	valuesShare     = "direction: egress, ingress; class: system, lsr, ls, be; none while network QoS is off"
	valuesStatus    = "status: succeeded, failed"
	valuesState     = "; state: active, degraded, observe, unsupported, off"
)

func nodeAnd(labels ...string) []string { return append([]string{labelNode}, labels...) }

func ofPod(more ...string) []string {
	return append([]string{"pod_namespace", "pod_name", "pod_uid"}, more...)
}

// rescaled are upstream's labels of what CPU burst changes: it leaves the pod's UID out.
func rescaled() []string {
	return nodeAnd("pod_namespace", "pod_name", "container_id", "container_name")
}

func byClass() []string { return []string{"class"} }

func pressure() []string {
	return []string{"psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported"}
}

func ofContainer(more ...string) []string {
	return ofPod(append([]string{"container_name", "container_id"}, more...)...)
}

// own is a name of ours.
func own(name string) string { return "koord_rt_koordlet_" + name }

var agentCatalogue = [NumAgentMetrics]Metric{
	AgentStartTime: {"koordlet_start_time", Gauge, nodeAnd(), "When the agent started, in seconds since 1970.", valuesAgentNode},
	AgentNodeCPU: {"koordlet_node_used_cpu_cores", Gauge, nodeAnd(),
		"CPU that the node used in the last tick.", valuesAgentNode},
	AgentNodeMemory: {"koordlet_node_used_memory_bytes", Gauge, nodeAnd(),
		"Memory that the node uses: MemTotal - MemAvailable - free memory on lists of the CPUs.", valuesAgentNode},
	AgentNodeAllocatable: {"koordlet_node_resource_allocatable", Gauge, nodeAnd("resource", "unit"),
		"Batch and mid resources that the node offers.", valuesAmount},
	AgentContainerRequests: {"koordlet_container_resource_requests", Gauge, append(nodeAnd("resource", "unit"), ofContainer()...),
		"Batch and mid resources that a container requests.", valuesAmount},
	AgentContainerLimits: {"koordlet_container_resource_limits", Gauge, append(nodeAnd("resource", "unit"), ofContainer()...),
		"Batch and mid resources that a container is limited to.", valuesAmount},
	AgentBESuppressCPU: {"koordlet_be_suppress_cpu_cores", Gauge, nodeAnd("type"),
		"CPU that suppression leaves to BE; no series while nothing holds it down.", "type: cpuset, cfsQuota"},
	AgentLSUsedCPU: {"koordlet_be_suppress_ls_used_cpu_cores", Gauge, nodeAnd(),
		"CPU used by all pods that are not BE.", valuesAgentNode},
	AgentBEUsedCPU: {"koordlet_be_suppress_be_used_cpu_cores", Gauge, nodeAnd(), "CPU used by BE pods.", valuesAgentNode},
	AgentPodEviction: {"koordlet_pod_eviction", Counter, nodeAnd("reason"),
		"Pods evicted.", "reason: BEMemoryEvict, MemoryAllocatableEvict, MemoryEvict, BECPUEvict, CPUAllocatableEvict, CPUEvict, other"},
	AgentPodEvictionDetail: {"koordlet_pod_eviction_detail", Counter, nodeAnd("pod_namespace", "pod_name", "reason"),
		"Evictions of a pod in the last 5 minutes; its series goes afterwards.", "at most 32 pods; reason: as for koordlet_pod_eviction"},
	AgentContainerQuota: {"koordlet_container_scaled_cfs_quota_us", Gauge, rescaled(),
		"CPU quota of a container while CPU burst has raised it, in µs per 100 ms.", valuesContainer},
	AgentContainerBurst: {"koordlet_container_scaled_cfs_burst_us", Gauge, rescaled(),
		"CPU burst that the agent has set on a container, in µs.", valuesContainer},
	AgentSharePool: {"koordlet_cpuset_share_pool_cpu_cores", Gauge, nodeAnd(),
		"CPUs that LS pods share.", valuesAgentNode},
	AgentBESharePool: {"koordlet_cpuset_be_share_pool_cpu_cores", Gauge, nodeAnd(), "CPUs that BE pods share.", valuesAgentNode},
	AgentSharePoolInfo: {"koordlet_cpuset_share_pool_info", Gauge, nodeAnd("cpu"),
		"1 for each CPU that LS pods share.", "cpu: its number"},
	AgentBESharePoolInfo: {"koordlet_cpuset_be_share_pool_info", Gauge, nodeAnd("cpu"),
		"1 for each CPU that BE pods share.", "cpu: its number"},
	AgentPredictedReclaimable: {"koordlet_node_predicted_resource_reclaimable", Gauge, nodeAnd("predictor", "resource", "unit"),
		"Requests that will not be used, as each predictor says.",
		"predictor: podReclaimablePredictor, priorityReclaimablePredictor, minPredictor; unit: core, byte"},
	AgentPredictedPeak: {"koordlet_node_predicted_resource_peak", Gauge, nodeAnd("predictor", "resource", "unit"),
		"Peak use, as each predictor says.", "as for koordlet_node_predicted_resource_reclaimable"},
	AgentReclaimable: {"koordlet_node_priority_resource_reclaimable", Gauge, nodeAnd("priority", "resource", "unit"),
		"Requests of a priority class that will not be used.", "priority: koord-prod; unit: core, byte"},
	AgentReclaimableStatus: {"koordlet_node_resource_priority_reclaimable_status", Gauge, nodeAnd("priority"),
		"0 when the prediction is known, 1 when it is not.", "priority: koord-prod"},
	AgentHostApplication: {"koordlet_host_application_resource_usage", Gauge,
		nodeAnd("host_application_name", "resource", "priority_class", "qos"),
		"CPU (in cores) and memory (in bytes) that a host application uses.", "at most 64 host applications"},
	AgentPodPSI: {"koordlet_pod_psi", Gauge,
		append(nodeAnd(), ofPod(pressure()...)...),
		"Percent of the last 10 s in which some or all tasks of a pod waited (kernel average).",
		"psi_resource_type: cpu, mem, io; psi_precision: avg10; psi_degree: some, full"},
	AgentContainerPSI: {"koordlet_container_psi", Gauge,
		append(nodeAnd(), ofContainer(pressure()...)...),
		"As koordlet_pod_psi, of a container.", "as for koordlet_pod_psi"},
	AgentContainerCPI: {"koordlet_container_cpi", Gauge, append(nodeAnd(), ofContainer("cpi_field")...),
		"Cycles and instructions of a container in the last measuring window; their quotient is CPI.", "cpi_field: cycles, instructions"},
	AgentLLC: {"koordlet_resctrl_llc_occupancy", Gauge, nodeAnd("cache_id", "qos"),
		"Cache that a resctrl group holds, in bytes.", "qos: the group; cache_id: the cache's id"},

	AgentNodeMetricNode: {"koordlet_node_metric_node_usage", Gauge, nodeAnd("resource", "unit"),
		"CPU and memory that the node uses, in the last tick; NodeMetric has the average of these.", valuesUsage},
	AgentNodeMetricSystem: {"koordlet_node_metric_system_usage", Gauge, nodeAnd("resource", "unit"),
		"The same of what is neither pods nor host applications.", valuesUsage},
	AgentNodeMetricNUMA: {"koordlet_node_metric_numa_node_usage", Gauge, nodeAnd("numa_node_id", "resource", "unit"),
		"As koordlet_node_metric_node_usage, of a NUMA node.", valuesUsage},
	AgentNodeMetricNUMASystem: {"koordlet_node_metric_numa_system_usage", Gauge, nodeAnd("numa_node_id", "resource", "unit"),
		"As koordlet_node_metric_system_usage, of a NUMA node.", valuesUsage},
	AgentKubeletRequest: {"koordlet_kubelet_request_duration_seconds", Histogram, []string{"verb", "path", "code"},
		"Time from a question to the kubelet to the beginning of its answer; without one there is none.",
		"verb: get; path: /pods/, /configz, other; code: of the answer"},
	AgentResourceUpdate: {"koordlet_resource_update_duration_milliseconds", Histogram, []string{"type", "status"},
		"Time of one write to the kernel; what stands already is not written, and a target that has gone is no failure.",
		"type: cgroup, resctrl-schema, default (all else); status: success, failed"},
	AgentCollectCPU: {"koordlet_collect_node_cpu_info_status", Counter, nodeAnd("status"),
		"Readings of the times of the node's CPUs.", valuesStatus},
	AgentCollectNUMA: {"koordlet_collect_node_numa_info_status", Counter, nodeAnd("status"),
		"Readings of the memory of all NUMA nodes.", valuesStatus},
	AgentCollectStorage: {"koordlet_collect_node_local_storage_info_status", Counter, nodeAnd("status"),
		"Readings of the list of disks.", valuesStatus},

	AgentSystemCPU:    {own("system_cpu_cores"), Gauge, nil, "CPU used by neither pods nor host applications.", ""},
	AgentSystemMemory: {own("system_memory_bytes"), Gauge, nil, "Memory used by neither pods nor host applications.", ""},
	AgentNodePressure: {own("node_pressure_ratio"), Gauge, []string{"resource", "degree"},
		"Share of the last 10 s in which some or all tasks of the node waited.", "resource: cpu, memory, io; degree: some, full"},
	AgentNUMACPU:          {own("numa_cpu_cores"), Gauge, []string{"numa"}, "CPU used on a NUMA node.", "numa: its number"},
	AgentNUMAMemory:       {own("numa_memory_bytes"), Gauge, []string{"numa"}, "Memory used on a NUMA node.", "numa: its number"},
	AgentClassPods:        {own("class_pods"), Gauge, byClass(), "Pods of a QoS class that have not ended.", valuesClass},
	AgentClassCPU:         {own("class_cpu_cores"), Gauge, byClass(), "CPU used by the pods of a QoS class.", valuesClass},
	AgentClassMemory:      {own("class_memory_bytes"), Gauge, byClass(), "Memory used by the pods of a QoS class.", valuesClass},
	AgentClassCPURequests: {own("class_cpu_request_cores"), Gauge, byClass(), "CPU requested, batch and mid CPU included.", valuesClass},
	AgentClassMemoryRequests: {own("class_memory_request_bytes"), Gauge, byClass(),
		"Memory requested, batch and mid memory included.", valuesClass},
	AgentClassPeak: {own("class_predicted_peak"), Gauge, []string{"by", "class", "resource", "unit"},
		"Predicted peak use of all pods of a class together, with the margin; no series while its model is cold.",
		"by: qos, priority; class: as for koord_rt_koordlet_class_pods, or koord-prod, koord-mid, koord-batch, koord-free, none; " + valuesUsage},
	AgentPodCPU:    {own("pod_cpu_cores"), Gauge, ofPod("class"), "CPU used by a pod.", valuesPod},
	AgentPodMemory: {own("pod_memory_bytes"), Gauge, ofPod("class"), "Memory of a pod without page cache.", valuesPod},
	AgentPodMemoryWithPageCache: {own("pod_memory_with_page_cache_bytes"), Gauge, ofPod("class"),
		"Memory of a pod with page cache.", valuesPod},
	AgentPodThrottled: {own("pod_cpu_throttled_ratio"), Gauge, ofPod("class"),
		"Share of periods in which the CPU quota ran out; no series without a quota.", valuesPod},
	AgentPodRunQueueDelay: {own("pod_run_queue_delay_seconds_per_second"), Gauge, ofPod("class"),
		"Time that the tasks of a pod waited for a CPU, summed up.", valuesPod},
	AgentPodDiskRead:  {own("pod_disk_read_bytes_per_second"), Gauge, ofPod("class"), "Bytes read from disks.", valuesPod},
	AgentPodDiskWrite: {own("pod_disk_write_bytes_per_second"), Gauge, ofPod("class"), "Bytes written to disks.", valuesPod},
	AgentPodReceive:   {own("pod_network_receive_bytes_per_second"), Gauge, ofPod("class"), "Bytes received.", valuesPod},
	AgentPodTransmit:  {own("pod_network_transmit_bytes_per_second"), Gauge, ofPod("class"), "Bytes sent.", valuesPod},
	AgentPodAllocLatency: {own("pod_memory_alloc_latency_seconds_per_second"), Gauge, ofPod("class"),
		"Time that the tasks of a pod waited for memory, summed up; without delay accounting the memory pressure of its worst container.", valuesPod},
	AgentPodDiskLatency: {own("pod_disk_latency_seconds"), Gauge, ofPod("class"),
		"Mean time of a wait for a disk; without delay accounting the IO pressure of a pod per request. No series while it waits for none.", valuesPod},
	AgentPodRTT: {own("pod_network_rtt_seconds"), Gauge, ofPod("class"),
		"Median round trip time of up to 16 TCP connections of a pod that were active; none of BE pods and those of the host's network.", valuesPod},
	AgentPodLLC: {own("pod_llc_occupancy_bytes"), Gauge, ofPod("class"),
		"Last-level cache that a pod holds, all caches together; no series without a monitoring group.", valuesPod},
	AgentPodMemoryBandwidth: {own("pod_memory_bandwidth_bytes_per_second"), Gauge, ofPod("class", "scope"),
		"Memory bandwidth of a pod, all caches together; no series without a monitoring group.", valuesPod + "; scope: total, local"},
	AgentPodDisturbed: {own("pod_disturbed"), Gauge, ofPod("signal", "figure"),
		"What a disturbed pod feels, and what is usual for it: ratios, microseconds, or cycles per instruction; no series while it is not.",
		valuesPod + "; signal: CPU pressure, disk latency …; figure: now, usual"},
	AgentContainerCPU:       {own("container_cpu_cores"), Gauge, ofContainer(), "CPU used by a container.", valuesContainer},
	AgentContainerMemory:    {own("container_memory_bytes"), Gauge, ofContainer(), "Memory of a container without page cache.", valuesContainer},
	AgentContainerThrottled: {own("container_cpu_throttled_ratio"), Gauge, ofContainer(), "As for pods.", valuesContainer},
	AgentMemoryBandwidth: {own("memory_bandwidth_bytes_per_second"), Gauge, []string{"cache_id", "qos", "scope"},
		"Memory bandwidth of a resctrl group.", "qos: the group; scope: total, local"},
	AgentBEAllowance: {own("be_allowance_cores"), Gauge, nil, "What the suppression formula gives to BE, possibly negative.", ""},
	AgentEvictions: {own("evictions_total"), Counter, []string{"feature", "outcome"},
		"Evictions by outcome.", "feature: as reason of koordlet_pod_eviction; outcome: evicted, refused, failed, observed"},
	AgentSourceState: {own("source_state"), Gauge, []string{"source", "state"},
		"1 for the state that a source of the agent is in.", "source: one of 32" + valuesState},
	AgentCollectorState: {own("collector_state"), Gauge, []string{"collector", "state"},
		"1 for the state that a collector is in.", "collector: one of 32" + valuesState},
	AgentNetworkBytes: {own("network_bytes_total"), Counter, []string{"direction", "class"},
		"Bytes that a class has had of the uplink since its shares were set.", valuesShare},
	AgentNetworkDropped: {own("network_dropped_total"), Counter, []string{"direction", "class"},
		"Packets that found the queue of their class full.", valuesShare},
	AgentLoopState: {own("loop_state"), Gauge, []string{"loop", "state"},
		"1 for the state that a loop is in.", "loop: one of 32" + valuesState},
	AgentLoopDecision: {own("loop_decision_timestamp_seconds"), Gauge, []string{"loop"},
		"When a loop decided last, in seconds since 1970.", "loop: one of 32"},
	AgentLoopDuration: {own("loop_duration_seconds"), Histogram, []string{"loop"}, "Time of one round of a loop.", "loop: a loop's name, other"},
	AgentLoopErrors:   {own("loop_errors_total"), Counter, []string{"loop"}, "Rounds of a loop in which something could not be measured, written, handed on or kept.", "loop: a loop's name, other"},
	AgentReaction: {own("reaction_seconds"), Histogram, nil,
		"Time from a pressure trigger, what it waited for its turn included, to the end of the writes of the step that answers it: a quota is in the kernel then, a set of CPUs in the handoff.", ""},
	AgentAPIWrites: {own("api_writes_total"), Counter, []string{"object", "result"},
		"Writes to the API server.", "object: nodemetrics, nodeslos, noderesourcetopologies, pods (evictions and deletions), other; result: ok, error"},
	AgentSamples:        {own("samples_total"), Counter, nil, "Samples collected.", ""},
	AgentReadErrors:     {own("read_errors_total"), Counter, nil, "Kernel files that could not be read.", ""},
	AgentWindowSubjects: {own("window_subjects"), Gauge, nil, "Subjects with samples in the window.", ""},
	AgentWindowSeries:   {own("window_series"), Gauge, nil, "Series in the window.", ""},
	AgentWindowBytes:    {own("window_bytes"), Gauge, nil, "Memory of the series in the window.", ""},
	AgentWindowDropped: {own("window_dropped_samples_total"), Counter, []string{"reason"},
		"Samples that the window did not take.", "reason: refused (no room), invalid, late"},
	AgentGoroutines: {own("goroutines"), Gauge, nil, "Goroutines of the agent: they do not grow with time.", ""},
	AgentGeneration: {own("publish_generation"), Gauge, []string{"part"},
		"Generation of what was handed to koord-nri and koord-runtime-proxy last.", "part: strategy, dynamic, pods"},
	AgentPodsAge: {own("pods_age_seconds"), Gauge, nil, "Time since a source last confirmed the pods.", ""},
	AgentLeftOut: {own("left_out"), Gauge, []string{"what"},
		"Pods and containers without series because there are too many.", "what: pods, containers"},
}

// AgentCatalogue lists the metrics of the node agent, indexed by AgentMetric.
func AgentCatalogue() []Metric {
	return slices.Clone(agentCatalogue[:])
}
