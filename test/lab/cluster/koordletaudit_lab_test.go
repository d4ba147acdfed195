// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// user is who koordlet is at the API server and at the kubelet.
const user = "koordlet"

// auditPolicy has the API server write down what koordlet asks and writes, and what kubelets ask about it:
// https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Request, users: [` + user + `], verbs: [create, patch, update, delete]}
- {level: Metadata, users: [` + user + `]}
` + kubeletRules + `
- {level: None}
`

// kubeletRules are of what kubelets ask about who asks them.
const kubeletRules = `
- level: RequestResponse
  userGroups: ["system:nodes"]
  resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]`

// audit is the API server's audit log.
type audit struct{ policy, log string }

func newAudit(t *testing.T, dir string) *audit {
	t.Helper()
	return newAuditOf(t, dir, auditPolicy)
}

// newAuditOf is an audit log by another policy.
func newAuditOf(t *testing.T, dir, policy string) *audit {
	t.Helper()
	a := &audit{policy: filepath.Join(dir, "policy.yaml"), log: filepath.Join(dir, "audit.log")}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(a.policy, []byte(policy), 0o600)); err != nil {
		t.Fatal(err)
	}
	return a
}

// flags of the API server.
func (a *audit) flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log}
}

// call is one audit event: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/.
type call struct {
	ID    string    `json:"auditID"` // of all its stages
	Stage string    `json:"stage"`
	Verb  string    `json:"verb"`
	URI   string    `json:"requestURI"`
	At    time.Time `json:"requestReceivedTimestamp"`
	From  []string  `json:"sourceIPs"`
	User  struct {
		Name string `json:"username"`
	} `json:"user"`
	Object struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Request json.RawMessage `json:"requestObject"`
	Answer  cluster.Object  `json:"responseObject"`
}

// what is "patch nodemetrics/status".
func (c *call) what() string {
	return c.Verb + " " + strings.TrimSuffix(c.Object.Resource+"/"+c.Object.Subresource, "/")
}

// dry is a dry run: a question, which changes nothing.
func (c *call) dry() bool { return strings.Contains(c.URI, "dryRun=All") }

// undecided stands for the code where the time of a webhook that must agree was over: nobody has said no.
const undecided = "undecided"

// answer is the code, or undecided. The words are the API server's; koord-manager's own 503 is an answer.
func (c *call) answer() string {
	if said := c.Response.Message; c.Response.Code == http.StatusInternalServerError && strings.Contains(said, "failed calling webhook") &&
		(strings.Contains(said, "context deadline exceeded") || strings.Contains(said, "context canceled")) {
		return undecided
	}
	return strconv.Itoa(c.Response.Code)
}

// excused are answers without those of this line, which ends with undecided: a webhook that has no CPU for as long as its timeout is not waited
// for, and koordlet goes on as it should. No more than lab.MostExcused are left out.
func excused(t *testing.T, answers []string, line string) []string {
	t.Helper()
	n := 0
	return slices.DeleteFunc(slices.Clone(answers), func(s string) bool {
		if s != line || n == lab.MostExcused {
			return false
		}
		n++
		t.Logf("no answer, since its webhook had no CPU: %s", s)
		return true
	})
}

// body is the object that was sent.
func (c *call) body(t *testing.T) cluster.Object {
	t.Helper()
	var o cluster.Object
	if err := json.Unmarshal(c.Request, &o); err != nil {
		t.Fatalf("body of %s: %v: %s", c.what(), err, c.Request)
	}
	return o
}

// status is what a patch that replaces the status puts there.
func (c *call) status(t *testing.T) cluster.Object {
	t.Helper()
	var patch []struct {
		Op, Path string
		Value    cluster.Object
	}
	if err := json.Unmarshal(c.Request, &patch); err != nil || len(patch) != 1 || patch[0].Path != "/status" {
		t.Fatalf("%s is no replacement of the status: %v: %.300s", c.what(), err, c.Request)
	}
	return patch[0].Value
}

// calls are koordlet's, in the order in which they were answered; a watch is there when it begins and when it ends.
func (a *audit) calls(t *testing.T, keep func(*call) bool) []call {
	t.Helper()
	return a.read(t, func(c *call) bool { return c.User.Name == user && keep(c) })
}

// read reads the log; the line that is being written is left for the next time.
func (a *audit) read(t *testing.T, keep func(*call) bool) (out []call) {
	t.Helper()
	data, err := os.ReadFile(a.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("audit log: %v: %.300s", err, line)
		}
		if keep(&c) {
			out = append(out, c)
		}
	}
	return out
}

// granted reports that a kubelet was told that somebody may do this to its node.
func (a *audit) granted(t *testing.T, who, verb, subresource string) bool {
	t.Helper()
	return len(a.read(t, func(c *call) bool {
		if c.Object.Resource != "subjectaccessreviews" || c.Answer.Str("spec", "user") != who {
			return false
		}
		allowed, _ := c.Answer.At("status", "allowed").(bool)
		about := func(field string) string { return c.Answer.Str("spec", "resourceAttributes", field) }
		return allowed && about("verb") == verb && about("resource") == "nodes" && about("subresource") == subresource && about("name") == "node0"
	})) > 0
}
