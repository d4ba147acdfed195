// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Route{
		"POST /containers/create":             {Verb: VerbCreate},
		"POST /v1.41/containers/create":       {Verb: VerbCreate},
		"POST /v1/containers/create":          {Verb: VerbCreate},
		"POST /v1.24/containers/abc/start":    {VerbStart, "abc"},
		"POST /containers/k8s_POD_x/stop":     {VerbStop, "k8s_POD_x"},
		"POST /containers/abc/update":         {VerbUpdate, "abc"},
		"POST /containers/abc/restart":        {VerbRestart, "abc"},
		"POST /containers/abc/kill":           {VerbKill, "abc"},
		"DELETE /v1.41/containers/abc":        {VerbRemove, "abc"},
		"DELETE /containers/":                 {},
		"DELETE /containers/a/b":              {},
		"DELETE /images/abc":                  {},
		"GET /containers/create":              {},
		"GET /containers/abc/json":            {},
		"POST /containers/abc/attach":         {},
		"POST /containers/abc/none":           {},
		"POST /containers/a/b/start":          {},
		"POST /containers//start":             {},
		"POST /containers/abc/start/":         {},
		"POST /volumes/create":                {},
		"POST /x1.41/containers/create":       {},
		"POST /v1.4a/containers/create":       {},
		"POST /v/containers/create":           {},
		"POST /v1.41":                         {},
		"POST /v1.41/v1.41/containers/create": {},
		"POST ":                               {},
	} {
		method, path, _ := strings.Cut(in, " ")
		if got := Match(method, path); got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
	for in, want := range map[string]bool{
		"POST /containers/a/attach": true, "POST /v1.41/exec/a/start": true, "GET /containers/a/attach": false,
		"POST /containers/a/start": false, "POST /exec/a/resize": false, "POST /containers/a/b/attach": false,
	} {
		method, path, _ := strings.Cut(in, " ")
		if got := Streams(method, path); got != want {
			t.Errorf("%s streams: %t", in, got)
		}
	}
}

func TestEditKeepsEveryOtherByte(t *testing.T) {
	t.Parallel()
	edits := []edit{{"Memory", []byte("7")}, {"New", []byte(`"x"`)}}
	for in, want := range map[string]string{
		`{}`:                         `{"Memory":7,"New":"x"}`,
		" { } \n":                    " { \"Memory\":7,\"New\":\"x\"} \n",
		`{"Memory": 1 , "z":1e400 }`: `{"Memory": 7 , "z":1e400,"New":"x" }`,
		`{"memory":null,"a":[{"Memory":3},"}\"{"]}`:  `{"memory":7,"a":[{"Memory":3},"}\"{"],"New":"x"}`,
		`{"n":12345678901234567890,"\u004demory":1}`: `{"n":12345678901234567890,"\u004demory":7,"New":"x"}`,
		`{"a":"\\","Memory":-1.5e-3,"b":true}`:       `{"a":"\\","Memory":7,"b":true,"New":"x"}`,
		`{"a":"é\ud800","b":[]}`:                     `{"a":"é\ud800","b":[],"Memory":7,"New":"x"}`,
	} {
		o, err := parseObject([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got, err := o.with(edits)
		if err != nil || string(got) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "null", "[]", "1", `"x"`, "{", `{"a":1}x`, `{"a":1}{}`, `{"a"}`, "{\"a\":1\x00}"} {
		if _, err := parseObject([]byte(in)); !errors.Is(err, ErrBody) {
			t.Errorf("%q: %v", in, err)
		}
	}
	twice, err := parseObject([]byte(`{"Memory":1,"memory":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := twice.with(edits); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("two fields of one name: %v", err)
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"Env":[4711]}`, `{"Env":"PASSWORD=4711"}`, `{"Labels":{"a":4711}}`, `{"HostConfig":{"Memory":"4711"}}`, `{"HostConfig":4711}`,
		`{"HostConfig":{"Memory":4711.5}}`, `{"Env":[],"Env":["4711"]}`, `{"HostConfig":{},"hostConfig":{"Memory":4711}}`,
	} {
		_, err := ParseCreate([]byte(in))
		if err == nil || strings.Contains(err.Error(), "4711") || !errors.Is(err, ErrBody) && !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s: %v", in, err)
		}
	}
	if _, err := ParseUpdate([]byte(`{"Memory":"4711"}`)); err == nil || strings.Contains(err.Error(), "4711") {
		t.Errorf("update: %v", err)
	}
}

const sandboxBody = `{"Image":"pause","Labels":{"annotation.node.koordinator.sh/oom-score-adj":"900","io.kubernetes.docker.type":"podsandbox",` +
	`"io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"u-1","koordinator.sh/qosClass":"BE"},` +
	`"HostConfig":{"CgroupParent":"kubepods-besteffort-podu_1.slice","OomScoreAdj":-998}}`

const containerBody = `{"Env":["SECRET=4711","PATH=/bin"],"Labels":{"io.kubernetes.container.name":"app","io.kubernetes.docker.type":"container",` +
	`"io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"u-1","io.kubernetes.sandbox.id":"s1"},` +
	`"HostConfig":{"CgroupParent":"/kubepods/besteffort/podu-1","CpuShares":2,"CpuQuota":50000,"CpuPeriod":100000,"Memory":67108864,"MemorySwap":67108864,"OomScoreAdj":1000,"Future":[1]},"Later":{"x":1}}`

func create(t *testing.T, body string) *Create {
	t.Helper()
	c, err := ParseCreate([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPodAndContainer(t *testing.T) {
	t.Parallel()
	s := create(t, sandboxBody)
	p := s.Pod()
	if s.Type() != TypeSandbox || p.FullName() != "default/web" || p.UID != "u-1" || p.KubeQoS != protocol.KubeBestEffort ||
		p.Cgroup != "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice" || p.Class() != protocol.QoSBE || len(p.Problems) > 0 {
		t.Errorf("pod %+v", p)
	}
	c := create(t, containerBody)
	w := c.Container()
	if c.Type() != TypeContainer || c.SandboxID() != "s1" || w.Name != "app" || !slices.Equal(w.EnvNames, []string{"SECRET", "PATH"}) {
		t.Errorf("container %+v", w)
	}
	want := workload.Resources{Shares: unit.Some(2), Quota: unit.Some(50000), Period: unit.Some(100000), MemoryLimit: unit.Some(67108864), OOMScoreAdj: unit.Some(1000)}
	if !reflect.DeepEqual(w.Base, want) {
		t.Errorf("base %+v, want %+v", w.Base, want)
	}
	if o := c.Orphan("gone"); o.ID != "s1" || o.FullName() != "default/web" || o.Cgroup != "/kubepods/besteffort/podu-1" || len(o.Problems) != 1 {
		t.Errorf("orphan %+v", o)
	}
	if n := create(t, `{"HostConfig":{"NanoCpus":1500000000}}`).Container().Base; n.CPULimit() != 1500 {
		t.Errorf("NanoCpus gave %+v", n)
	}
	for _, body := range []string{`{}`, `{"Labels":{"io.kubernetes.docker.type":"other"}}`, `{"Labels":null,"HostConfig":null}`} {
		if got := create(t, body).Type(); got != "" {
			t.Errorf("%s is a %s", body, got)
		}
	}
	for in, want := range map[[2]string]string{
		{"/kubepods/podU", "c1"}:                       "/kubepods/podU/c1",
		{"/kubepods.slice/kubepods-podU.slice", "c1"}:  "/kubepods.slice/kubepods-podU.slice/docker-c1.scope",
		{"/kubepods/podU", ""}:                         "",
		{"/kubepods/podU", "."}:                        "",
		{"/kubepods/podU", ".."}:                       "",
		{"/kubepods.slice/kubepods-podU.slice", "a/b"}: "",
		{"", "c1"}: "",
	} {
		if got := Cgroup(in[0], in[1]); got != want {
			t.Errorf("Cgroup(%q) = %q, want %q", in, got, want)
		}
	}
	if bad := create(t, `{"HostConfig":{"CgroupParent":"../up"}}`).Pod(); bad.Cgroup != "" || len(bad.Problems) != 1 || bad.Problems[0].Key != "cgroup-parent" {
		t.Errorf("bad parent: %+v", bad)
	}
}

func setting(k plan.Knob, key string, v plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelContainer, Name: "default/web/app"}, Knob: k, Key: key, Value: v, Owner: protocol.FeatureBatch, Reason: "test"}
}

func view() *node.View {
	v := &node.View{Generation: 3}
	v.Kernel.Disks = map[string]string{"sda": "8:0", "/dev/sda": "8:0", "vdb": "254:16"}
	v.Kernel.Devices = []node.DeviceNode{{Path: "/dev/nvidia0", Major: 195, MinorNumber: 0}}
	v.Runtime.Fields.CDI = true
	return v
}

// applyTo makes a body of the HostConfig and returns it without the label that marks the change.
func applyTo(t *testing.T, host string, s ...plan.Setting) (got string, rest plan.Plan) {
	t.Helper()
	c := create(t, `{"HostConfig":`+host+`}`)
	body, rest, err := c.Apply(view(), s, c.Container(), mark.By{Program: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ HostConfig json.RawMessage }
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return string(out.HostConfig), rest
}

func TestApplyCreate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		host string
		s    plan.Setting
		want string // "" = host unchanged and the setting left over
	}{
		"shares":           {`{"CpuShares":2}`, setting(plan.CPUShares, "", plan.Int(512)), `{"CpuShares":512}`},
		"held":             {`{"CpuShares": 2}`, setting(plan.CPUShares, "", plan.Int(2)), `{"CpuShares": 2}`},
		"shares too low":   {`{}`, setting(plan.CPUShares, "", plan.Int(1)), ""},
		"quota":            {`{"X":1}`, setting(plan.CPUQuota, "", plan.Int(-1)), `{"X":1,"CpuQuota":-1}`},
		"quota with nano":  {`{"NanoCpus":1}`, setting(plan.CPUQuota, "", plan.Int(5000)), ""},
		"period":           {`{}`, setting(plan.CPUPeriod, "", plan.Int(100000)), `{"CpuPeriod":100000}`},
		"cpus":             {`{}`, setting(plan.CPUSetCPUs, "", plan.Text("0-1")), `{"CpusetCpus":"0-1"}`},
		"no cpus":          {`{}`, setting(plan.CPUSetCPUs, "", plan.Text("")), ""},
		"mems":             {`{}`, setting(plan.CPUSetMems, "", plan.Text("0")), `{"CpusetMems":"0"}`},
		"memory":           {`{}`, setting(plan.MemoryLimit, "", plan.Int(8<<20)), `{"Memory":8388608}`},
		"memory and swap":  {`{"Memory":9,"MemorySwap":10}`, setting(plan.MemoryLimit, "", plan.Int(8<<20)), `{"Memory":8388608,"MemorySwap":8388609}`},
		"swap of all bits": {`{"Memory":9,"MemorySwap":9223372036854775807}`, setting(plan.MemoryLimit, "", plan.Int(8<<20)), `{"Memory":8388608,"MemorySwap":9223372036854775807}`},
		"swap unlimited":   {`{"Memory":9,"MemorySwap":-1}`, setting(plan.MemoryLimit, "", plan.Int(8<<20)), `{"Memory":8388608,"MemorySwap":-1}`},
		"unlimited":        {`{"Memory":9,"MemorySwap":9}`, setting(plan.MemoryLimit, "", plan.Int(-1)), `{"Memory":0,"MemorySwap":0}`},
		"memory too low":   {`{}`, setting(plan.MemoryLimit, "", plan.Int(4096)), ""},
		"oom":              {`{"OomScoreAdj":0}`, setting(plan.OOMScoreAdj, "", plan.Int(900)), `{"OomScoreAdj":900}`},
		"oom out of range": {`{}`, setting(plan.OOMScoreAdj, "", plan.Int(1001)), ""},
		"throttle":         {`{}`, setting(plan.IOReadBPS, "8:0", plan.Int(1024)), `{"BlkioDeviceReadBps":[{"Path":"/dev/sda","Rate":1024}]}`},
		"throttle replaced": {`{"BlkioDeviceWriteIOps":[{"Path":"/dev/x","Rate":1},{"Path":"vdb","Rate":2}]}`, setting(plan.IOWriteIOPS, "254:16", plan.Int(3)),
			`{"BlkioDeviceWriteIOps":[{"Path":"/dev/x","Rate":1},{"Path":"/dev/vdb","Rate":3}]}`},
		"unknown disk": {`{}`, setting(plan.IOReadBPS, "9:9", plan.Int(1024)), ""},
		"device": {`{"Devices":[{"PathInContainer":"/dev/a"}]}`, setting(plan.Device, "/dev/nvidia0", plan.Text("c 195:0 rw")),
			`{"Devices":[{"PathInContainer":"/dev/a"},{"PathOnHost":"/dev/nvidia0","PathInContainer":"/dev/nvidia0","CgroupPermissions":"rw"}]}`},
		"device twice":   {`{"Devices":[{"PathInContainer":"/dev/nvidia0"}]}`, setting(plan.Device, "/dev/nvidia0", plan.Text("c 195:0 rw")), ""},
		"unknown device": {`{}`, setting(plan.Device, "/dev/q", plan.Text("c 1:1 rwm")), ""},
		"cdi":            {`{}`, setting(plan.CDIDevice, "v/c=0", plan.Text("")), `{"DeviceRequests":[{"Driver":"cdi","DeviceIDs":["v/c=0"]}]}`},
		"mount":          {`{"Binds":["/a:/b"]}`, setting(plan.Mount, "/mps", plan.Text("/run/mps bind,ro")), `{"Binds":["/a:/b","/run/mps:/mps:ro"]}`},
		"mount taken":    {`{"Binds":["/a:/mps:ro"]}`, setting(plan.Mount, "/mps", plan.Text("/run/mps bind")), ""},
		"mount option":   {`{}`, setting(plan.Mount, "/mps", plan.Text("/run/mps noexec")), ""},
		"memory.high":    {`{}`, setting(plan.MemoryHigh, "", plan.Int(4096)), ""},
		"idle":           {`{}`, setting(plan.CPUIdle, "", plan.Int(1)), ""},
		"rdt":            {`{}`, setting(plan.RDTClass, "", plan.Text("BE")), ""},
		"weight":         {`{}`, setting(plan.IOWeight, "", plan.Int(50)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, rest := applyTo(t, tt.host, tt.s)
			want, left := tt.want, 0
			if want == "" {
				want, left = tt.host, 1
			}
			if got != want || len(rest) != left {
				t.Errorf("got %s, rest %v; want %s, %d left", got, rest, want, left)
			}
		})
	}
}

func TestApplyLeavesTheRest(t *testing.T) {
	t.Parallel()
	c := create(t, containerBody)
	observed := setting(plan.CPUShares, "", plan.Int(9))
	observed.Observe = true
	body, rest, err := c.Apply(view(), plan.Plan{observed}, c.Container(), mark.By{Program: "test", Version: "1"})
	if err != nil || string(body) != containerBody || len(rest) != 1 {
		t.Errorf("an observed plan: %s, %v, %v", body, rest, err)
	}
	p := plan.Plan{setting(plan.CPUQuota, "", plan.Int(70000)), setting(plan.Env, "NEW", plan.Text("a b")), setting(plan.Env, "PATH", plan.Text("/x")), setting(plan.MemoryHigh, "", plan.Int(1))}
	body, rest, err = c.Apply(view(), p, c.Container(), mark.By{Program: "test", Version: "1"})
	if err != nil || len(rest) != 1 {
		t.Fatal(rest, err)
	}
	want := strings.NewReplacer(`"CpuQuota":50000`, `"CpuQuota":70000`, `"SECRET=4711","PATH=/bin"`, `"SECRET=4711","PATH=/x","NEW=a b"`).Replace(containerBody)
	label := `,"annotation.koord-rt.dev/applied":`
	i, j := strings.Index(string(body), label), strings.Index(string(body), `},"HostConfig"`)
	if i < 0 || j < i || string(body[:i])+string(body[j:]) != want {
		t.Errorf("got %s\nwant %s", body, want)
	}
	if strings.Contains(string(body[i:j]), "a b") {
		t.Error("the label tells a variable's value")
	}
	if string(c.Raw()) != containerBody {
		t.Error("Apply wrote to its input")
	}
	none := create(t, `{"Env":null}`)
	if body, rest, err := none.Apply(view(), p[:2], none.Container(), mark.By{Program: "x", Version: "1"}); err != nil || len(rest) != 1 || !strings.HasPrefix(string(body), `{"Env":["NEW=a b"]`) {
		t.Errorf("without HostConfig: %s, %v, %v", body, rest, err)
	}
}

// What a creation has set is taken back to the base by the label or by a newer mark.
func TestInspectRebases(t *testing.T) {
	t.Parallel()
	c := create(t, containerBody)
	body, _, err := c.Apply(view(), plan.Plan{setting(plan.CPUQuota, "", plan.Int(70000)), setting(plan.CPUSetCPUs, "", plan.Text("1"))}, c.Container(), mark.By{Program: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var b struct{ Labels, HostConfig json.RawMessage }
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(err)
	}
	reply := `{"Id":"c1","State":{"Status":"running","Running":true,"Pid":42},"Config":{"Labels":` + string(b.Labels) + `},"HostConfig":` + string(b.HostConfig) + `}`
	in, err := ParseInspect([]byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	w := in.Container()
	if w.Applied == nil || w.Base.Quota != unit.Some(50000) || w.Base.CPUs != "" || w.PID != 42 || w.State != workload.StateRunning ||
		w.Cgroup != "/kubepods/besteffort/podu-1/c1" || in.SandboxID() != "s1" {
		t.Errorf("container %+v", w)
	}
	newer := &protocol.Applied{Set: map[string]string{"cpu.quota": "70000 batch"}, Base: map[string]string{"cpu.quota": "60000"}}
	if w := in.Container(newer); w.Base.Quota != unit.Some(60000) {
		t.Errorf("a newer mark gave %+v", w.Base)
	}
	in.HostConfig.CPUQuota = 80000 // somebody else's
	if w := in.Container(newer); w.Base.Quota != unit.Some(80000) {
		t.Errorf("a foreign value gave %+v", w.Base)
	}
	in.HostConfig.CgroupParent = "kubepods-podu.slice"
	if w := in.Container(); w.Cgroup != "/kubepods.slice/kubepods-podu.slice/docker-c1.scope" {
		t.Errorf("scope %s", w.Cgroup)
	}
	if _, err := ParseInspect([]byte(`{"Name":"/x"}`)); !errors.Is(err, ErrBody) {
		t.Errorf("no id: %v", err)
	}
	if ids, err := ParseList([]byte(`[{"Id":"a"},{},{"Id":"b"}]`)); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("list %v, %v", ids, err)
	}
	if id, err := ParseCreated([]byte(`{"Id":"a","Warnings":[]}`)); id != "a" || err != nil {
		t.Errorf("created %q, %v", id, err)
	}
}

func TestApplyUpdate(t *testing.T) {
	t.Parallel()
	current := &Inspect{HostConfig: hostConfig{resources: resources{Memory: 64 << 20, MemorySwap: 64 << 20}}}
	for name, tt := range map[string]struct {
		body string
		p    plan.Plan
		want string
		left int
	}{
		"nothing":         {`{ "CpuShares":5}`, nil, `{ "CpuShares":5}`, 0},
		"stated":          {`{"CpuShares":5}`, plan.Plan{setting(plan.CPUShares, "", plan.Int(5))}, `{"CpuShares":5}`, 0},
		"added":           {`{"RestartPolicy":{"Name":""}}`, plan.Plan{setting(plan.CPUQuota, "", plan.Int(9000))}, `{"RestartPolicy":{"Name":""},"CpuQuota":9000}`, 0},
		"memory":          {`{"Memory":1}`, plan.Plan{setting(plan.MemoryLimit, "", plan.Int(128<<20))}, `{"Memory":134217728,"MemorySwap":134217728}`, 0},
		"memory and swap": {`{"Memory":10,"MemorySwap":30}`, plan.Plan{setting(plan.MemoryLimit, "", plan.Int(128<<20))}, `{"Memory":134217728,"MemorySwap":134217748}`, 0},
		"no unlimited":    {`{}`, plan.Plan{setting(plan.MemoryLimit, "", plan.Int(-1))}, `{}`, 1},
		"oom stays":       {`{}`, plan.Plan{setting(plan.OOMScoreAdj, "", plan.Int(5)), setting(plan.MemoryHigh, "", plan.Int(5))}, `{}`, 2},
		"idle":            {`{"CpuShares":5}`, plan.Plan{setting(plan.CPUIdle, "", plan.Int(1)), setting(plan.CPUShares, "", plan.Int(2))}, `{"CpuShares":0}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := ParseUpdate([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			got, rest, err := u.Apply(view(), tt.p, current)
			if err != nil || string(got) != tt.want || len(rest) != tt.left {
				t.Errorf("got %s, %v, %v; want %s", got, rest, err, tt.want)
			}
		})
	}
	u, err := ParseUpdate([]byte(`{"CpuShares":7,"CpusetCpus":"3"}`))
	if err != nil {
		t.Fatal(err)
	}
	base := u.Base(workload.Resources{Shares: unit.Some(1), Quota: unit.Some(2), CPUs: "0"})
	if base.Shares.V != 7 || base.Quota.V != 2 || base.CPUs != "3" {
		t.Errorf("base %+v", base)
	}
}
