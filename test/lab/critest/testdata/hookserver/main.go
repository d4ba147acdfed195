// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command hookserver runs the runtime hook server of upstream's koordlet: its package runtimehooks with every plugin,
// registration and rule, unchanged. What koordlet's informers read from the API server and the kubelet comes from a file: the
// NodeSLO. There are no pods, so its reconcilers write nothing.
//
// It is compiled inside a copy of upstream's module (test/lab/critest), never as a part of this one.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	topology "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	slo "github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/runtimehooks"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/statesinformer"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/util/system"
	"github.com/koordinator-sh/koordinator/pkg/util/sloconfig"
)

// informer is a StatesInformer that knows a NodeSLO.
type informer struct {
	onSLO []statesinformer.UpdateCbFn
}

func (i *informer) Run(<-chan struct{}) error                   { return nil }
func (i *informer) HasSynced() bool                             { return true }
func (i *informer) GetNode() *corev1.Node                       { return nil }
func (i *informer) GetNodeSLO() *slo.NodeSLO                    { return nil }
func (i *informer) GetNodeMetricSpec() *slo.NodeMetricSpec      { return nil }
func (i *informer) GetAllPods() []*statesinformer.PodMeta       { return nil }
func (i *informer) GetNodeTopo() *topology.NodeResourceTopology { return nil }
func (i *informer) GetVolumeName(string, string) string         { return "" }
func (i *informer) RegisterCallbacks(t statesinformer.RegisterType, _, _ string, f statesinformer.UpdateCbFn) {
	if t == statesinformer.RegisterTypeNodeSLOSpec {
		i.onSLO = append(i.onSLO, f)
	}
}

// follow tells each new content of the file, over upstream's defaults.
func (i *informer) follow(path string) {
	var last []byte
	for ; ; time.Sleep(50 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if err != nil || bytes.Equal(data, last) {
			continue
		}
		spec := sloconfig.DefaultNodeSLOSpecConfig()
		if err := json.Unmarshal(data, &spec); err != nil {
			continue // half written
		}
		last = data
		for _, f := range i.onSLO {
			f(statesinformer.RegisterTypeNodeSLOSpec, &spec, &statesinformer.CallbackTarget{})
		}
	}
}

func main() {
	config := runtimehooks.NewDefaultConfig()
	config.InitFlags(flag.CommandLine)
	system.Conf.InitFlags(flag.CommandLine)
	klog.InitFlags(nil)
	strategy := flag.String("node-slo", "", "file with a NodeSLO's spec in JSON")
	flag.Parse()
	system.InitSupportConfigs()
	// For events alone; nobody answers there.
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://127.0.0.1:1"})
	states := &informer{}
	hook, err := runtimehooks.NewRuntimeHook(states, config, runtime.NewScheme(), client, "node")
	if err != nil {
		klog.Fatal(err)
	}
	go states.follow(*strategy)
	stop, signals := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		close(stop)
	}()
	if err := hook.Run(stop); err != nil {
		klog.Fatal(err)
	}
}
