package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rule is one entry of the control file. The first rule that matches and is not used up decides.
type rule struct {
	Op        string `json:"op"`        // "prepare" or "unprepare"; empty: both; "GetInfo", "NotifyRegistrationStatus", "health", "drop": see there
	Claim     string `json:"claim"`     // substring of the claim's name
	Device    string `json:"device"`    // substring of one of its devices' names (prepare only)
	Code      int    `json:"code"`      // gRPC code of an error of the whole call; 0: an error of the claim
	Text      string `json:"text"`      // error text; empty: no error
	Times     int    `json:"times"`     // how often for each claim; 0: always
	SleepMs   int    `json:"sleepMs"`   // wait before the answer, cut short by the caller's deadline
	Stubborn  bool   `json:"stubborn"`  // sleep on when the caller has given up, as hardware does
	Permanent bool   `json:"permanent"` // say permanent_error (field 3) beside the claim's error
}

// script is the control file and how often each of its rules was used.
type script struct {
	file string
	mu   sync.Mutex
	used map[string]int
}

// next finds the rule for one claim of a call and counts its use.
//
// Uses are counted by the rule's content and the claim's UID: a rewritten file starts anew only for
// rules that changed, and a replacement pod starts anew for all.
func (s *script) next(op, claim string, uid types.UID, devices []string) (rule, error) {
	rules, err := s.read()
	if err != nil {
		return rule{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		if !r.matches(op, claim, devices) {
			continue
		}
		key := fmt.Sprintf("%+v %s", r, uid)
		if r.Times > 0 && s.used[key] >= r.Times {
			continue
		}
		s.used[key]++
		return r, nil
	}
	return rule{}, nil
}

// named finds the rule whose op is the name of a method of the registration service.
func (s *script) named(method string) (rule, error) {
	rules, err := s.read()
	if err != nil {
		return rule{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		key := fmt.Sprintf("%+v", r)
		if r.Op == method && (r.Times == 0 || s.used[key] < r.Times) {
			s.used[key]++
			return r, nil
		}
	}
	return rule{}, nil
}

func (s *script) read() ([]rule, error) {
	content, err := os.ReadFile(s.file)
	if os.IsNotExist(err) || s.file == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rules []rule
	if err := json.Unmarshal(content, &rules); err != nil {
		return nil, fmt.Errorf("control file: %w", err)
	}
	return rules, nil
}

func (r rule) matches(op, claim string, devices []string) bool {
	if r.Op != "" && r.Op != op || !strings.Contains(claim, r.Claim) {
		return false
	}
	if r.Device == "" {
		return true
	}
	for _, device := range devices {
		if strings.Contains(device, r.Device) {
			return true
		}
	}
	return false
}

func (r rule) sleep(ctx context.Context) {
	pause := time.Duration(r.SleepMs) * time.Millisecond
	if r.Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
