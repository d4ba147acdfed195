// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command nriruntime is the runtime's side of NRI: the module's own package adaptation, which is what containerd and CRI-O
// embed, told by its caller what happens. It is compiled with each version of the module that the lab wants, so requests go
// by name and JSON: the types of the methods differ from version to version.
//
//	nriruntime NAME VERSION SOCKET EMPTYDIR
//
// Standard input has one JSON object per line. The first is a SynchronizeRequest, what exists when a plugin comes; then
// {"event": METHOD, "request": {...}}, each answered on standard output by {"event": METHOD, "reply": {...}} or
// {"event": METHOD, "error": TEXT}. A plugin's synchronization is told as an event of its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type line struct {
	Event   string          `json:"event"`
	Request json.RawMessage `json:"request,omitempty"`
	Reply   json.RawMessage `json:"reply,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nriruntime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: nriruntime NAME VERSION SOCKET EMPTYDIR")
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var exists api.SynchronizeRequest
	if !in.Scan() {
		return errors.New("read what exists: no first line")
	}
	if err := read(in.Bytes(), &exists); err != nil {
		return fmt.Errorf("read what exists: %w", err)
	}
	var out sync.Mutex
	say := func(l line) {
		out.Lock()
		defer out.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(l) // a caller that is gone has closed standard input as well
	}
	synchronize := func(ctx context.Context, plugin adaptation.SyncCB) error {
		updates, err := plugin(ctx, exists.Pods, exists.Containers)
		say(answer("Synchronize", &api.SynchronizeResponse{Update: updates}, err))
		return err
	}
	unsolicited := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		say(line{Event: "UpdateContainers", Error: "the plugin sent an update that nobody asked for"})
		return nil, errors.New("unsolicited update")
	}
	// Three times the defaults, as in the lab's containerd: a plugin without a CPU is not one that hangs.
	adaptation.SetPluginRegistrationTimeout(3 * adaptation.DefaultPluginRegistrationTimeout)
	adaptation.SetPluginRequestTimeout(3 * adaptation.DefaultPluginRequestTimeout)
	r, err := adaptation.New(args[0], args[1], synchronize, unsolicited,
		adaptation.WithSocketPath(args[2]), adaptation.WithPluginPath(args[3]), adaptation.WithPluginConfigPath(args[3]))
	if err != nil {
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	defer r.Stop()
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		reply, err := call(r, l)
		say(answer(l.Event, reply, err))
	}
	return in.Err()
}

// call lets the plugins see an event, as a runtime does: none of them in the middle of its synchronization.
func call(r *adaptation.Adaptation, l line) (proto.Message, error) {
	m := reflect.ValueOf(r).MethodByName(l.Event)
	if !m.IsValid() {
		return nil, errors.New("this version of NRI has no such event")
	}
	request := reflect.New(m.Type().In(1).Elem())
	if err := read(l.Request, request.Interface().(proto.Message)); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	block := r.BlockPluginSync()
	defer block.Unblock()
	results := m.Call([]reflect.Value{reflect.ValueOf(context.Background()), request})
	err, _ := results[len(results)-1].Interface().(error)
	if len(results) == 1 || err != nil {
		return nil, err
	}
	return results[0].Interface().(proto.Message), nil
}

func read(text []byte, into proto.Message) error {
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

func answer(event string, reply proto.Message, err error) line {
	l := line{Event: event}
	if err == nil && reply != nil {
		l.Reply, err = protojson.Marshal(reply)
	}
	if err != nil {
		l.Error = err.Error()
	}
	return l
}
