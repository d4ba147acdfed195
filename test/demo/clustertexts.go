// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Keys of slo-controller-config that the demo writes.
const (
	keyColocation = "colocation-config"
	keyThreshold  = "resource-threshold-config"
)

// shop is the namespace of the workloads.
const shop = "shop"

// colocationText is colocation-config by which a node reports as often as it can and lends that part of its CPUs. Differences of a
// twentieth are written, so that there is something to see.
func colocationText(lend int) string {
	return fmt.Sprintf(`enable: true
cpuReclaimThresholdPercent: %d
metricReportIntervalSeconds: 30
metricAggregateDurationSeconds: 60
resourceDiffThreshold: 0.05
`, lend)
}

// thresholdText is resource-threshold-config: best-effort pods get what is left of four fifths of the node. The control plane runs on
// it too.
const thresholdText = `clusterStrategy:
  enable: true
  cpuSuppressThresholdPercent: 80
  cpuSuppressPolicy: cfsQuota
`

// profileText turns pods of that label into best-effort pods of batch resources.
const profileText = `apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: crunch
spec:
  selector: {matchLabels: {app: crunch}}
  qosClass: BE
  priorityClassName: koord-batch
`

// webText is an LS pod with half of the CPUs, which burns them while /tmp/load exists in its container.
func webText(cpus int) string {
	half := strconv.Itoa(max(cpus/2, 1))
	return `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ` + shop + `, labels: {koordinator.sh/qosClass: LS}}
spec:
  dnsPolicy: Default
  terminationGracePeriodSeconds: 1
  containers:
  - name: serve
    image: ` + parts.ImageRef + `
    imagePullPolicy: Never
    resources: {requests: {cpu: "` + half + `", memory: 16Mi}, limits: {cpu: "` + half + `", memory: 64Mi}}
    command: ` + command(burnOnDemand(half)) + "\n"
}

// crunchText is a Deployment that knows nothing of Koordinator. Its pod would burn all CPUs.
func crunchText(milli, cpus int) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: crunch, namespace: ` + shop + `}
spec:
  replicas: 1
  selector: {matchLabels: {app: crunch}}
  template:
    metadata: {labels: {app: crunch}}
    spec:
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers:
      - name: work
        image: ` + parts.ImageRef + `
        imagePullPolicy: Never
        resources:
          requests: {cpu: ` + strconv.Itoa(milli) + `m, memory: 64Mi}
          limits: {cpu: ` + strconv.Itoa(milli) + `m, memory: 128Mi}
        command: ` + command(burn(strconv.Itoa(cpus))) + "\n"
}

// command is a shell script as a container's command, in YAML.
func command(script string) string {
	return "[/bin/sh, -c, '" + strings.ReplaceAll(script, "'", "''") + "']"
}

// burnOnDemand burns that many CPUs while /tmp/load exists, burn always.
func burnOnDemand(cpus string) string {
	return "while :; do while [ ! -e /tmp/load ]; do sleep 0.2; done; i=0; " +
		"while [ $i -lt " + cpus + " ]; do (while [ -e /tmp/load ]; do :; done) & i=$((i+1)); done; wait; done"
}

func burn(cpus string) string {
	return "i=0; while [ $i -lt " + cpus + " ]; do (while :; do :; done) & i=$((i+1)); done; wait"
}

// Of what the node lends the Deployment asks for half, in steps of a twentieth of a CPU. With less than least nothing can be shown.
const (
	stepMilli  = 50
	leastMilli = 200
)

// ask is the Deployment's request in thousandths of a CPU, of what the node lends; 0 where that is too little.
func ask(lent int) int {
	if lent < leastMilli {
		return 0
	}
	return lent / 2 / stepMilli * stepMilli
}
