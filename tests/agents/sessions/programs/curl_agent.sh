# One question, one answer, without any SDK.
body=$(python3 -c '
import json, os
row = json.load(open(os.environ["AGENT_RL_ROW_FILE"]))
print(json.dumps({"model": "policy", "messages": row["prompt"], "max_tokens": 16}))
')
curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" -d "$body" > /dev/null
curl -sf "$AGENT_RL_GATEWAY/session/reward" -H "Authorization: Bearer $OPENAI_API_KEY" -d '{"reward": 0.5}' > /dev/null
