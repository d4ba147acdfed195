// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// ruled is an object as a user writes it and what the API server says: nothing when it is taken.
type ruled struct {
	name, text, want string
}

const (
	aNodeSLO     = "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: ruled}\nspec: "
	aNodeMetric  = "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeMetric\nmetadata: {name: ruled}\n"
	aProfile     = "apiVersion: config.koordinator.sh/v1alpha1\nkind: ClusterColocationProfile\nmetadata: {name: ruled}\nspec: "
	aDevice      = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: ruled}\nspec: {devices: ["
	aTopology    = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: ClusterNetworkTopology\nmetadata: {name: ruled}\nspec: {networkTopologySpec: ["
	aJob         = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: PodMigrationJob\nmetadata: {name: ruled}\nspec: "
	aReservation = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Reservation\nmetadata: {name: ruled}\nspec: "
	aQuota       = "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: ruled, namespace: default}\nspec: "
	aPoolProfile = "apiVersion: quota.koordinator.sh/v1alpha1\nkind: ElasticQuotaProfile\nmetadata: {name: ruled, namespace: default}\nspec: "
	aRecommended = "apiVersion: analysis.koordinator.sh/v1alpha1\nkind: Recommendation\nmetadata: {name: ruled, namespace: default}\nspec: {target: "
)

var rulings = []ruled{
	{"typo in the documents' thresholds", aNodeSLO + "{resourceThresholdStrategy: {thresholds: {cpu-supress-percent: 65}}}", "spec.resourceThresholdStrategy.thresholds.cpu-supress-percent"},
	{"typo in a class", aNodeSLO + "{resourceQOSStrategy: {beClass: {memoryQOS: {wmarkratio: 65}}}}", "spec.resourceQOSStrategy.beClass.memoryQOS.wmarkratio"},
	{"unknown status", aNodeMetric + "status: {nodeMetrics: {}}", "status.nodeMetrics"},
	{"unknown field of a quota", aQuota + "{minimum: {cpu: 1}}", "spec.minimum"},
	{"an amount whose power of ten takes minutes", aQuota + "{max: {memory: '1e-99999999'}}", "spec.max.memory"},
	{"an amount in thousandths", aQuota + "{max: {cpu: '1500e-3'}}", ""},
	{"unknown field of a profile", aProfile + "{qos: BE}", "spec.qos"},
	{"out of range", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: 165}}", "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent in body should be less than or equal to 100"},
	{"over the limit, as the documents have it", aNodeSLO + "{resourceQOSStrategy: {lsrClass: {memoryQOS: {throttlingPercent: 120}}}}", ""},
	{"no such policy", aNodeSLO + "{cpuBurstStrategy: {policy: always}}", "supported values: \"none\", \"cpuBurstOnly\", \"cfsQuotaBurstOnly\", \"auto\""},
	{"no such quantity", aNodeSLO + "{systemStrategy: {totalNetworkBandwidth: much}}", "spec.systemStrategy.totalNetworkBandwidth"},
	{"percent of the network", aNodeSLO + "{resourceQOSStrategy: {beClass: {networkQOS: {ingressLimit: 101}}}}", "percent of the total bandwidth, 0..100"},
	{"bits of the network", aNodeSLO + "{resourceQOSStrategy: {beClass: {networkQOS: {ingressLimit: 500M}}}}", ""},
	{"block twice", aNodeSLO + "{resourceQOSStrategy: {beClass: {blkioQOS: {blocks: [{name: sda, type: device}, {name: sda, type: device}]}}}}", "each name once per type"},
	{"block of two types", aNodeSLO + "{resourceQOSStrategy: {beClass: {blkioQOS: {blocks: [{name: sda, type: device}, {name: sda, type: volumegroup}]}}}}", ""},
	{"block without a type", aNodeSLO + "{resourceQOSStrategy: {beClass: {blkioQOS: {blocks: [{name: sda}]}}}}", "blocks[0].type: Required"},
	{"application without a name", aNodeSLO + "{hostApplications: [{qos: LS}]}", "hostApplications[0].name: Required"},
	{"cache range", aNodeSLO + "{resourceQOSStrategy: {beClass: {resctrlQOS: {catRangeStartPercent: 30, catRangeEndPercent: 30}}}}", "catRangeStartPercent must be below catRangeEndPercent"},
	{"lower at the threshold", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryEvictThresholdPercent: 80, memoryEvictLowerPercent: 80}}", "memoryEvictLowerPercent must be below memoryEvictThresholdPercent"},
	{"lower at the default", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryEvictLowerPercent: 70}}", "memoryEvictLowerPercent must be below memoryEvictThresholdPercent (default 70)"},
	{"lower below the default", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryEvictLowerPercent: 69}}", ""},
	{"satisfaction", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuEvictBESatisfactionLowerPercent: 60, cpuEvictBESatisfactionUpperPercent: 50}}", "cpuEvictBESatisfactionLowerPercent must be below"},
	{"CPU", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuEvictLowerPercent: 60, cpuEvictThresholdPercent: 50}}", "cpuEvictLowerPercent must be below"},
	{"allocatable CPU", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuAllocatableEvictLowerPercent: 160, cpuAllocatableEvictThresholdPercent: 150}}", "cpuAllocatableEvictLowerPercent must be below"},
	{"allocatable memory", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryAllocatableEvictLowerPercent: 160, memoryAllocatableEvictThresholdPercent: 150}}", "memoryAllocatableEvictLowerPercent must be below"},

	{"two spellings: enable", aNodeSLO + "{resourceUsedThresholdWithBE: {enable: true}, resourceThresholdStrategy: {enable: false}}", "resourceUsedThresholdWithBE.enable and resourceThresholdStrategy.enable are two spellings"},
	{"two spellings: suppress", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: 60}, resourceThresholdStrategy: {thresholds: {cpu-suppress-percent: 65}}}", "thresholds.cpu-suppress-percent are two spellings"},
	{"two spellings: evict", aNodeSLO + "{resourceUsedThresholdWithBE: {cpuEvictPSIThresholdPercent: 60}, resourceThresholdStrategy: {thresholds: {cpu-evict-threshold-percent: 65}}}", "thresholds.cpu-evict-threshold-percent are two spellings"},
	{"two spellings: memory", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryEvictThresholdPercent: 60}, resourceThresholdStrategy: {thresholds: {memory-evict-threshold-percent: 65}}}", "thresholds.memory-evict-threshold-percent are two spellings"},
	{"two spellings: utilization", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryRequestUtilizationPercent: 60}, resourceThresholdStrategy: {thresholds: {memory-request-utilization-percent: 65}}}", "thresholds.memory-request-utilization-percent are two spellings"},
	{"two spellings: block IO", aNodeSLO + "{resourceQOSStrategy: {lsClass: {blkioQOS: {enable: true}, blkIOQOS: {enable: false}}}}", "blkioQOS and blkIOQOS are two spellings"},
	{"two spellings that agree", aNodeSLO + "{resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65}, resourceThresholdStrategy: {enable: true, thresholds: {cpu-suppress-percent: 65}}, resourceQOSStrategy: {lsClass: {blkioQOS: {enable: true}, blkIOQOS: {enable: true}}}}", ""},
	{"two spellings of different fields", aNodeSLO + "{resourceUsedThresholdWithBE: {memoryEvictThresholdPercent: 80}, resourceThresholdStrategy: {enable: true, thresholds: {cpu-suppress-percent: 65}}}", ""},

	{"another node's name", aNodeMetric + "spec: {nodeName: other}", "metadata.name and spec.nodeName must be equal"},
	{"two intervals", aNodeMetric + "spec: {collectionIntervalSeconds: 60, metricCollectPolicy: {reportIntervalSeconds: 30}}", "reportIntervalSeconds and collectionIntervalSeconds are two spellings"},
	{"one interval, twice", aNodeMetric + "spec: {nodeName: ruled, collectionIntervalSeconds: 60, metricCollectPolicy: {reportIntervalSeconds: 60}}", ""},
	{"no interval", aNodeMetric + "spec: {collectionIntervalSeconds: 0}", "should be greater than or equal to 1"},
	{"page cache", aNodeMetric + "spec: {metricCollectPolicy: {nodeMemoryCollectPolicy: all}}", "usageWithHotPageCache"},

	{"probability above all", aProfile + "{probability: 101}", "probability is a whole number 0..100"},
	{"probability in words", aProfile + "{probability: half}", "probability is a whole number 0..100"},
	{"probability", aProfile + "{probability: 100%}", ""},
	{"no such class", aProfile + "{qosClass: LS2}", "supported values"},
	{"a patch of anything", aProfile + "{patch: {spec: {newerField: 1}}}", ""},

	{"device types", aDevice + "{health: true, type: gpu, deviceType: rdma}]}", "type and deviceType are two spellings"},
	{"device ids", aDevice + "{health: true, id: a, uuid: b}]}", "id and uuid are two spellings"},
	{"device models", aDevice + "{health: true, labels: {model: a}, deviceModel: b}]}", "labels.model and deviceModel are two spellings"},
	{"device, twice the same", aDevice + "{type: gpu, deviceType: gpu, id: a, uuid: a, labels: {model: a}, deviceModel: a}]}", ""},

	{"a device twice", aDevice + "{type: gpu, id: a}, {type: gpu, id: b}, {type: gpu, id: a}]}", "two devices have the same id (uuid)"},
	{"a device twice, in two spellings", aDevice + "{type: gpu, id: a}, {deviceType: gpu, uuid: a}]}", "two devices have the same id (uuid)"},
	{"devices without an id", aDevice + "{type: rdma}, {type: rdma}, {type: gpu, id: ''}, {type: gpu, id: ''}]}", ""},
	{"as many devices as there may be", aDevice + manyDevices(256) + "]}", ""},

	{"a layer twice", aTopology + "{topologyLayer: A}, {topologyLayer: A}]}", "each layer stands once"},
	{"a parent that is no layer", aTopology + "{topologyLayer: A}, {topologyLayer: B, parentTopologyLayer: C}]}", "a parentTopologyLayer is no layer"},
	{"a layer above itself", aTopology + "{topologyLayer: A, parentTopologyLayer: A}]}", "neither the layer itself nor NodeTopologyLayer"},
	{"a layer below the nodes", aTopology + "{topologyLayer: NodeTopologyLayer}, {topologyLayer: A, parentTopologyLayer: NodeTopologyLayer}]}", "neither the layer itself nor NodeTopologyLayer"},
	{"a layer above the root", aTopology + "{topologyLayer: A}, {topologyLayer: ClusterTopologyLayer, parentTopologyLayer: A}]}", "ClusterTopologyLayer is the root"},
	{"a layer without a name", aTopology + "{topologyLayer: ''}]}", "topologyLayer"},
	{"an empty label", aTopology + "{topologyLayer: A, labelKey: ['']}]}", "labelKey[0]"},
	{"layers, the root among them", aTopology + "{topologyLayer: ClusterTopologyLayer}, {topologyLayer: B, parentTopologyLayer: A}, {topologyLayer: A, parentTopologyLayer: ClusterTopologyLayer, labelKey: [a, b]}, {topologyLayer: NodeTopologyLayer, parentTopologyLayer: B}]}", ""},
	{"as many layers as there may be", aTopology + manyLayers(64) + "]}", ""},

	{"a job without a pod's name", aJob + "{podRef: {namespace: default}}", "give both name and namespace"},
	{"a job with an empty namespace", aJob + "{podRef: {name: a, namespace: ''}}", "give both name and namespace"},
	{"a job that moves no pod", aJob + "{podRef: {kind: Deployment, name: a, namespace: default}}", "only pods are moved"},
	{"a job of a pod", aJob + "{podRef: {kind: Pod, name: a, namespace: default}}", ""},

	{"no owner", aReservation + "{template: {spec: {}}, owners: []}", "spec.owners"},
	{"no template", aReservation + "{owners: [{}]}", "spec.template: Required"},
	{"no such policy of a reservation", aReservation + "{template: {}, owners: [{}], allocatePolicy: Loose}", "\"Aligned\", \"Restricted\""},

	{"no amount", aQuota + "{min: {cpu: much}}", "spec.min.cpu"},
	{"guarantee above the maximum", aQuota + "{min: {cpu: 2}, max: {cpu: 1999m}}", "min must not be above max"},
	{"guarantee above the cap", aQuota + "{min: {memory: 2Gi}, max: {memory: 4Gi}, hard: {memory: 2047Mi}}", "min must not be above hard"},
	{"guarantee equal to both", aQuota + "{min: {cpu: 2, pods: \"5\"}, max: {cpu: 2000m}, hard: {cpu: \"2\", memory: 1Gi}}", ""},
	{"cap above the maximum", aQuota + "{min: {cpu: 1}, max: {cpu: 2}, hard: {cpu: 3}}", ""},
	{"ratio above one", aPoolProfile + "{quotaName: q, nodeSelector: {}, resourceRatio: \"1.1\"}", "spec.resourceRatio"},
	{"ratio", aPoolProfile + "{quotaName: q, nodeSelector: {}, resourceRatio: \"1.0\"}", ""},
	{"no workload", aRecommended + "{type: workload}}", "target.workload is needed with type workload"},
	{"no selector", aRecommended + "{type: podSelector, workload: {kind: A, name: b}}}", "target.podSelector is needed with type podSelector"},
}

// manyDevices have ids as long as those of GPUs: what the rule about them costs grows with the square of their number.
func manyDevices(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("{type: gpu, id: GPU-01234567-89ab-cdef-0123-%012d}", i)
	}
	return strings.Join(out, ", ")
}

// manyLayers are one below the other, with names as long as they may be.
func manyLayers(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("{topologyLayer: L%062d, parentTopologyLayer: L%062d}", i, i-1)
	}
	out[0] = fmt.Sprintf("{topologyLayer: L%062d}", 0)
	return strings.Join(out, ", ")
}

// reported are statuses of a NodeMetric.
var reported = []ruled{
	{"two usages of a node", "status: {nodeMetric: {usage: {cpu: 2}, nodeUsage: {resources: {cpu: 3}}}}", "nodeUsage.resources and usage are two spellings"},
	{"two amounts of memory", "status: {nodeMetric: {usage: {cpu: 2, memory: 1G}, nodeUsage: {resources: {cpu: 2, memory: 1Gi}}}}", "nodeUsage.resources and usage are two spellings"},
	{"one usage, written twice", "status: {nodeMetric: {usage: {cpu: 2, memory: 1Gi}, nodeUsage: {resources: {cpu: 2000m, memory: 1024Mi, pods: \"3\"}}}}", ""},
	{"usages of different resources", "status: {nodeMetric: {usage: {cpu: 2}, nodeUsage: {resources: {memory: 1Gi}}}}", ""},
}

// reports: the same of what a node writes. The object goes again.
func (d *defined) reports(ctx context.Context, t *testing.T) {
	const path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/ruled"
	if err := d.apply(ctx, aNodeMetric); err != nil {
		t.Fatal(err)
	}
	for _, r := range reported {
		t.Run(r.name, func(t *testing.T) {
			status, err := cluster.ParseObject([]byte(r.text))
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.c.Admin().Patch(ctx, path+"/status?dryRun=All", cluster.MergePatch, status)
			if (err == nil) != (r.want == "") || err != nil && !strings.Contains(err.Error(), r.want) {
				t.Errorf("want %q, have %v", r.want, err)
			}
		})
	}
	if err := d.c.Admin().Delete(ctx, path, -1); err != nil {
		t.Error(err)
	}
}

// rules: what is wrong is refused in words that name the field, what is right is taken.
func (d *defined) rules(ctx context.Context, t *testing.T) {
	for _, r := range rulings {
		t.Run(r.name, func(t *testing.T) {
			err := d.apply(ctx, r.text)
			switch {
			case r.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)):
				t.Errorf("want %q, have %v", r.want, err)
			}
		})
	}
	d.reports(ctx, t)
}
